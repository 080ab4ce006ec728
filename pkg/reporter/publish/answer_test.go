package publish

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/must"
)

// owned returns an entry of managedFields: a manager, and the fields that it owns.
func owned(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "operator.openshift.io/v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: "status",
	}
}

// ownsCondition returns the fields of a manager that owns a node's condition.
func ownsCondition(node string) string {
	return fmt.Sprintf(`{"f:status":{"f:conditions":{%s}}}`, conditionFields(node))
}

func conditionFields(node string) string {
	return fmt.Sprintf(`"k:{\"type\":\"%s\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}`,
		contract.ConditionType(node))
}

// metadataWith returns an API server's answer to a write.
func metadataWith(annotations map[string]string, fields ...metav1.ManagedFieldsEntry) string {
	answer, err := json.Marshal(metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster", ResourceVersion: "12", Annotations: annotations, ManagedFields: fields},
	})
	if err != nil {
		panic(err)
	}
	return string(answer)
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
}

func TestWriteSucceededOnlyIfTheAnswerShowsIt(t *testing.T) {
	const own = "kms-health-reporter-n"
	indented := strings.NewReplacer(`{"`, "{\n \"", `":`, `": `).Replace(metadataWith(nil, owned("kms-health-reporter-other", "{}")))
	spaced := fmt.Sprintf(`{"metadata": {"managedFields": [{"fieldsV1": %s, "manager": %q}]}}`, ownsCondition("n"), own)
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   Kind
	}{
		"the manager owns the condition":       {says(metadataWith(nil, owned("x", "{}"), owned(own, ownsCondition("n")), owned("y", "{}"))), Success},
		"the same in another order":            {says(spaced), Success},
		"the condition is in its second entry": {says(metadataWith(nil, owned(own, `{"f:metadata":{}}`), owned(own, ownsCondition("n")))), Success},
		"it owns another condition beside it": {says(metadataWith(nil, owned(own, fmt.Sprintf(`{"f:status":{"f:conditions":{%s,%s}}}`,
			conditionFields("a"), conditionFields("n"))))), Success},
		"an empty body":                      {says(""), Unexpected},
		"a Status of a failure":              {says(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}`), Unexpected},
		"another JSON":                       {says(`{"ok":true}`), Unexpected},
		"null":                               {says("null"), Unexpected},
		"no managedFields":                   {says(metadataWith(nil)), Unexpected},
		"another manager alone and indented": {says(indented), Unexpected},
		"the manager owns something else":    {says(metadataWith(nil, owned(own, `{"f:status":{"f:version":{}}}`))), Unexpected},
		"it owns the condition of another node": {says(metadataWith(nil, owned(own, ownsCondition("m")))),
			Unexpected},
		"another manager owns the condition": {says(metadataWith(nil, owned("x", ownsCondition("n")))), Unexpected},
		"the next manager owns the condition": {says(metadataWith(nil, owned(own, `{"f:status":{"f:version":{}}}`), owned("x", ownsCondition("n")))),
			Unexpected},
		"the condition's key is in another list": {says(metadataWith(nil, owned(own, fmt.Sprintf(`{"f:status":{"f:generations":{%s}}}`, conditionFields("n"))))),
			Unexpected},
		"annotations have all of it": {says(metadataWith(map[string]string{
			"manager": own, "operation": "Apply", "fieldsV1": ownsCondition("n"),
			"x": metadataWith(nil, owned(own, ownsCondition("n")))}, owned("y", ownsCondition("n")))), Unexpected},
		"zeros without an end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for zeros := make([]byte, 1<<20); ; {
				if _, err := w.Write(zeros); err != nil {
					return // the client has closed the connection
				}
			}
		}, Unexpected},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := reportTo(t, tt.answer, waitLimit)
			p.waitFor(t, tt.want, 1)
			if text := p.LastError(); len(text) > 2048 || strings.Contains(text, "\n") {
				t.Errorf("%d bytes: %.100q", len(text), text)
			}
		})
	}
}

func TestBufferOfALargeAnswerIsNotKept(t *testing.T) {
	s := newServer(t)
	large := metadataWith(map[string]string{"x": strings.Repeat("x", 2<<20)}, owned("kms-health-reporter-n", ownsCondition("n")))
	s.answers(says(large))
	config := Config{To: contract.ResourceOf("kubeapiservers"), Node: "n"}
	c := credentials{config: &config, age: time.Hour}
	config.Kubeconfig, config.WriteTimeout.Duration = credentialFiles(t, s)+"/kubeconfig", waitLimit
	endpoints, err := c.current()
	must.Succeed(t, err)
	t.Cleanup(c.close)
	if failed := endpoints[0].apply(t.Context(), []byte("{}"), waitLimit); failed != nil {
		t.Fatal(failed)
	}
	if kept := endpoints[0].answer.Cap(); kept > keptAnswer {
		t.Errorf("%d bytes are kept, want at most %d", kept, keptAnswer)
	}
}

// A proxy, or an overloaded server, may send the status code but never finish the body. An error is one line of bounded
// length.
func TestAnswerIsOfItsStatusKindAlsoIfItsBodyIsSlowOrBroken(t *testing.T) {
	const start = `{"kind":"Status","status":"Failure","message":"forbidden: by policy`
	goesOn := func(w http.ResponseWriter, _ *http.Request) {
		for err := error(nil); err == nil; { // until the client has closed the connection
			_, err = io.WriteString(w, "line\n\x7f")
		}
	}
	breaks := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, tt := range map[string]struct {
		code int
		want Kind
		end  http.HandlerFunc
	}{
		"403 slow":   {http.StatusForbidden, Forbidden, hangs},
		"403 broken": {http.StatusForbidden, Forbidden, breaks},
		"401 slow":   {http.StatusUnauthorized, Unauthorized, hangs},
		"429 slow":   {http.StatusTooManyRequests, Throttled, hangs},
		"500 broken": {http.StatusInternalServerError, ServerError, breaks},
		"302 slow":   {http.StatusFound, Unexpected, hangs},
		"500 longer": {http.StatusInternalServerError, ServerError, goesOn},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := reportTo(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(tt.code)
				_, _ = io.WriteString(w, start)
				_ = http.NewResponseController(w).Flush()
				tt.end(w, r)
			}, 500*time.Millisecond)
			await(t, "the text that arrived is in the error", func() bool {
				return strings.Contains(p.LastError(), "forbidden: by policy")
			})
			p.waitFor(t, tt.want, 1)
			if text := p.LastError(); len(text) > 2048 || strings.ContainsAny(text, "\n\x7f") {
				t.Errorf("%d bytes: %.100q", len(text), text)
			}
		})
	}
}

// BenchmarkAnswer checks an answer with the managed fields of 40 managers.
func BenchmarkAnswer(b *testing.B) {
	var fields []metav1.ManagedFieldsEntry
	for i := range 40 {
		node := fmt.Sprintf("node-%d", i)
		fields = append(fields, owned(contract.ConditionManager(node), ownsCondition(node)),
			owned("operator", `{"f:status":{`+strings.Repeat(`"f:x":{},`, 50)+`"f:y":{}}}`))
	}
	answer := []byte(metadataWith(nil, fields...))
	b.SetBytes(int64(len(answer)))
	for b.Loop() {
		if failed := answerShows(answer, "node-20"); failed != nil {
			b.Fatal(failed)
		}
	}
}
