package api

import (
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-dev/pawl/events"
)

var (
	noDeadline    time.Time // removes a network deadline
	submittedType = reflect.TypeFor[Submitted]()
)

// intentSchema documents the body of a submission. It is for readers and client
// generators; what judges the body is the intent door.
func intentSchema() *huma.Schema {
	clock := func(doc string) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Description: doc, Examples: []any{"15m"}}
	}
	text := func(doc string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: doc} }
	s := &huma.Schema{
		Type:                 huma.TypeObject,
		AdditionalProperties: false,
		Required:             []string{"provider", "input"},
		Properties: map[string]*huma.Schema{
			"operation_id":  {Type: huma.TypeString, Pattern: `^[A-Za-z0-9_-]{1,64}$`, Description: "Your identity for the operation, unique over all providers. Also the idempotency token."},
			"provider":      {Type: huma.TypeString, Pattern: `^[a-z0-9-]{1,32}$`, Description: "Configured name of the provider."},
			"account":       text("Credential set to use."),
			"input":         {Type: huma.TypeObject, AdditionalProperties: true, Description: "What the provider's description renders into a request."},
			"authorized_by": text("Who stands behind it."),
			"effects":       {Type: huma.TypeArray, Items: text(""), Description: "Configured effects to run on settlement. Left out: the configured default; empty: none."},
			"labels":        {Type: huma.TypeObject, AdditionalProperties: text(""), Description: "Up to 16 labels to find the operation by."},
			"deadlines": {
				Type:                 huma.TypeObject,
				AdditionalProperties: false,
				Description:          "Clocks that differ from the provider's.",
				Properties: map[string]*huma.Schema{
					"start_by": {Type: huma.TypeString, Format: "date-time", Description: "Do not send after this."},
					"create":   clock("How long creates may be tried."),
					"recon":    clock("How long to look for an answer that was lost."),
					"result":   clock("How long the remote job may take."),
					"confirm":  clock("How long a claim may stay unconfirmed."),
					"collect":  clock("How long collecting the result may take."),
				},
			},
		},
	}
	return s
}

// describeStates puts the closed sets of words into the parameters' schemas, so
// that they are written down once.
func describeStates(op *huma.Operation) {
	for _, p := range op.Parameters {
		switch p.Name {
		case "state":
			p.Description = "One of " + joined(events.States()) + ". May be repeated."
		case "outcome":
			p.Description = "One of " + joined(outcomes()) + "."
		}
	}
}

func outcomes() []events.Outcome {
	return []events.Outcome{
		events.OutcomePending, events.OutcomeConfirmed, events.OutcomeFailed,
		events.OutcomeCancelled, events.OutcomePendingReview,
	}
}

func joined[T ~string](words []T) string {
	var text string
	for i, w := range words {
		if i > 0 {
			text += ", "
		}
		text += string(w)
	}
	return text
}
