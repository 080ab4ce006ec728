package watch

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTwoViewsShareOneSource(t *testing.T) {
	onStage(t, func(s *stage) {
		s.create("a", "1")
		one, two := s.viewer(), s.viewer()
		first := s.look(one, all)
		if n := one.woken(); n == 0 || !first.Known() {
			t.Errorf("woken %d times, known %v", n, first.Known())
		}

		// What the other knows is known at once, and wakes nobody.
		second := s.look(two, all)
		if x, ok := second.Get("ns", "a"); first != second || !second.Known() || !ok || x != "1" {
			t.Errorf("the same %v, known %v, %q", first == second, second.Known(), x)
		}
		if a, b := one.woken(), two.woken(); a+b > 0 || len(s.listed()) != 1 {
			t.Errorf("woken %d and %d times, %d lists", a, b, len(s.listed()))
		}

		// A change wakes both.
		s.update("2", "2")
		if a, b := one.woken(), two.woken(); a != 1 || b != 1 {
			t.Errorf("woken %d and %d times", a, b)
		}
		s.create("b", "1")
		if a, b := one.woken(), two.woken(); a != 1 || b != 1 || len(first.All()) != 2 {
			t.Errorf("woken %d and %d times by a new one of %q", a, b, first.All())
		}
		if err := s.client.Tracker().Delete(configMaps, "ns", "b"); err != nil {
			t.Fatal(err)
		}
		if a, b := one.woken(), two.woken(); a != 1 || b != 1 || len(first.All()) != 1 {
			t.Errorf("woken %d and %d times by a removal of %q", a, b, first.All())
		}
	})
}

// As a Node's heartbeat is.
func TestAChangeThatReadsAlikeWakesNobody(t *testing.T) {
	onStage(t, func(s *stage) {
		s.create("a", "1")
		v := s.viewer()
		s.look(v, all)
		v.woken()
		s.update("1", "2")
		if n := v.woken(); n > 0 {
			t.Errorf("woken %d times", n)
		}
		s.update("2", "3")
		if n := v.woken(); n != 1 {
			t.Errorf("woken %d times by a change", n)
		}
	})
}

func TestASourceEndsWhenNobodyAsks(t *testing.T) {
	onStage(t, func(s *stage) {
		s.create("a", "1")
		one, two := s.viewer(), s.viewer()
		s.look(one, all)
		s.look(two, all)
		synctest.Wait()

		// One lets go: the other goes on.
		s.look(one)
		one.woken()
		two.woken()
		s.update("2", "2")
		if a, b := one.woken(), two.woken(); a != 0 || b != 1 {
			t.Errorf("woken %d and %d times", a, b)
		}
		if s.running() != 1 {
			t.Error("it ended while one still asks")
		}

		// So does the other.
		s.look(two)
		s.Wait()
		s.update("3", "3")
		if a, b := one.woken(), two.woken(); a+b > 0 || s.running() > 0 {
			t.Errorf("woken %d and %d times, %d sources", a, b, s.running())
		}

		// Who asks again begins anew.
		source := s.look(one, all)
		synctest.Wait()
		if x, _ := source.Get("ns", "a"); x != "3" || len(s.listed()) != 2 {
			t.Errorf("%q after %d lists", x, len(s.listed()))
		}
	})
}

func (s *stage) running() int {
	s.Set.mu.Lock()
	defer s.Set.mu.Unlock()
	return len(s.Set.running)
}

// A pass lets go of what it does not ask for, and of nothing else.
func TestAPassKeepsWhatItAsksFor(t *testing.T) {
	onStage(t, func(s *stage) {
		v := s.viewer()
		labelled, one := Selection{Resource: configMaps, Namespace: "ns", Labels: "x=y"}, Selection{Resource: configMaps, Namespace: "ns", Name: "a"}
		s.look(v, all, labelled, one)
		synctest.Wait()
		if n := len(s.listed()); n != 3 || s.running() != 3 {
			t.Errorf("%d lists, %d sources", n, s.running())
		}
		chosen := map[string]int{}
		for _, c := range s.chosen {
			chosen[c.Fields.String()+" "+c.Labels.String()]++
		}
		if chosen[" "] != 1 || chosen[" x=y"] != 1 || chosen["metadata.name=a "] != 1 {
			t.Errorf("chosen %v", chosen)
		}
		s.look(v, labelled, all)
		s.look(v, all)
		synctest.Wait()
		if n := len(s.listed()); n != 3 || s.running() != 1 {
			t.Errorf("%d lists, %d sources", n, s.running())
		}
	})
}

func TestAVariantHasASourceOfItsOwn(t *testing.T) {
	onStage(t, func(s *stage) {
		v := s.viewer()
		v.Begin()
		a := Follow(s.ctx, v.View, all, data, nil, "a")
		b := Follow(s.ctx, v.View, all, data, nil, "b")
		whole := Follow(s.ctx, v.View, all, Whole, nil, "a")
		again := Follow(s.ctx, v.View, all, data, nil, "a")
		v.End()
		if a == b || a != again || whole == nil || s.running() != 3 {
			t.Errorf("%d sources", s.running())
		}
	})
}

// Reports come all the time, and need not wake who only waits for the first.
func TestAViewMayHaveASourceWakeSomethingElse(t *testing.T) {
	onStage(t, func(s *stage) {
		v, other := s.viewer(), s.viewer()
		v.Begin()
		Follow(s.ctx, v.View, all, data, other.wakeUp)
		v.End()
		s.create("a", "1")
		if a, b := v.woken(), other.woken(); a != 0 || b == 0 {
			t.Errorf("woken %d and %d times", a, b)
		}
	})
}

// A source goes on while a view's pass takes its time.
func TestASourceIsKnownWhileTheFirstPassGoesOn(t *testing.T) {
	onStage(t, func(s *stage) {
		s.create("a", "1")
		v := s.viewer()
		v.Begin()
		source := Follow(s.ctx, v.View, all, data, nil)
		s.until(time.Second)
		if !source.Known() || v.woken() == 0 {
			t.Error("it is not known")
		}
		v.End()
	})
}
