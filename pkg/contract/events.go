package contract

// Event is a reason of an Event of the operator that no condition has. make generate writes a
// constant for each.
type Event struct{ Reason, Type, When string }

// Events are all of them. The reasons of conditions are reasons of Events, too.
var Events = []Event{
	{"Applied", "Normal", "an object was created or changed"},
	{"Deleted", "Normal", "an object was deleted"},
	{"Injected", "Normal", "the reporter was added to a Deployment, or changed in it"},
	{"Ejected", "Normal", "the reporter was removed from a Deployment"},
	{
		"ConfigurationInvalid", "Warning",
		"the operator's file was rejected, and the last valid one stays active. Its message begins with `configuration`",
	},
	{"ReportRemoved", "Normal", "a report that no reporter writes any more was removed"},
}
