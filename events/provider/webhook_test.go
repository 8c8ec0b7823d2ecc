package provider

import (
	"strings"
	"testing"

	"github.com/pawl-dev/pawl/events"
)

// Without these refusals two readers of one message may see two different jobs.

func TestReadWebhook(t *testing.T) {
	t.Parallel()
	p := described(t, "generic")
	good := `{"deliveryId":"d","jobId":"j","state":"running","seq":1}`
	for name, body := range map[string]string{
		"not JSON":       `hello`,
		"empty":          ``,
		"trailing":       good + `{}`,
		"duplicate key":  `{"deliveryId":"d","jobId":"j","jobId":"k","state":"running"}`,
		"invalid UTF-8":  "{\"deliveryId\":\"d\",\"jobId\":\"\xff\",\"state\":\"running\"}",
		"too deep":       `{"deliveryId":"d","jobId":"j","state":"running","x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
		"no id":          `{"deliveryId":"d","state":"running"}`,
		"empty id":       `{"deliveryId":"d","jobId":"","state":"running"}`,
		"null id":        `{"deliveryId":"d","jobId":null,"state":"running"}`,
		"long id":        `{"deliveryId":"d","jobId":"` + strings.Repeat("x", events.RemoteIDMaxBytes+1) + `","state":"running"}`,
		"no delivery":    `{"jobId":"j","state":"running"}`,
		"empty delivery": `{"deliveryId":"","jobId":"j","state":"running"}`,
		"long delivery":  `{"deliveryId":"` + strings.Repeat("x", dedupMaxBytes+1) + `","jobId":"j","state":"running"}`,
		"no state":       `{"deliveryId":"d","jobId":"j"}`,
		"array":          `[]`,
	} {
		if w, err := p.ReadWebhook(nil, []byte(body)); err == nil {
			t.Errorf("%s: want it unreadable, got %+v", name, w)
		}
	}
	w, err := p.ReadWebhook(nil, []byte(`{"deliveryId":12345678901234567890123,"jobId":9007199254740993,"state":"exploded"}`))
	if err != nil || len(w) != 1 || w[0].Remote != "9007199254740993" || w[0].DedupKey != "12345678901234567890123" || !w[0].Unrecognised || w[0].Word != "exploded" || w[0].Reading != nil {
		t.Errorf("want an unknown word kept as such, got %+v, %v", w, err)
	}
	if w, err := p.ReadWebhook(nil, []byte(good)); err != nil || w[0].Reading.Authoritative || w[0].Reading.Source != events.SourceWebhook || w[0].Reading.ProviderSeq != 1 {
		t.Errorf("want a reading without authority, got %+v, %v", w, err)
	}
}

// TestWebhookPushOnly: without a status endpoint the webhook carries the result.
func TestWebhookPushOnly(t *testing.T) {
	t.Parallel()
	p := made(t, parse(t, "push.yaml", []byte(`version: 1
name: push
base_url: https://x.example.com
create: {path: /a, id: "${body.id}"}
states: {unused: queued}
webhook:
  verify: {preset: standard_webhooks}
  ignore: ${body.type == 'ping'}
  job_id: ${body.data.id}
  state: ${body.type}
  states: {job.done: succeeded, job.failed: failed}
  dedup: ${body.data.id + ':' + body.type}
  result: ${body.data.?value}
  error_message: ${body.data.reason}
  max_bytes: 2048
  ack: {status: 202, content_type: application/json, body: "[accepted]"}
`)))
	if p.Contract() != (events.Contract{Result: true}) {
		t.Errorf("want only a result promised, got %+v", p.Contract())
	}
	w, err := p.ReadWebhook(nil, []byte(`{"type":"job.done","data":{"id":"j","value":[1.10]}}`))
	if err != nil || w[0].DedupKey != "j:job.done" || string(w[0].Reading.Result.Inline) != `[1.10]` {
		t.Errorf("want a success with its result, got %+v, %v", w, err)
	}
	w, err = p.ReadWebhook(nil, []byte(`{"type":"job.failed","data":{"id":"j","reason":"heat"}}`))
	if err != nil || w[0].Reading.Error == nil || w[0].Reading.Error.Message != "heat" {
		t.Errorf("want a failure with its words, got %+v, %v", w, err)
	}
	w, err = p.ReadWebhook(nil, []byte(`{"type":"ping"}`))
	if err != nil || len(w) != 1 || !w[0].Ignored {
		t.Errorf("want a ping ignored, got %+v, %v", w, err)
	}
	if status, ct, body := p.Ack(); status != 202 || ct != "application/json" || string(body) != "[accepted]" || p.WebhookMaxBytes() != 2048 {
		t.Errorf("want the description's ack, got %d %s %s", status, ct, body)
	}
}

// TestHeaderFlat: a name in two spellings would be read by chance.
func TestHeaderFlat(t *testing.T) {
	t.Parallel()
	got := Header{"Webhook-Id": {"a"}, "webhook-id": {"b"}, "X": {"1", "2"}, "Empty": nil}.flat()
	if len(got) != 1 || got["x"] != "1" {
		t.Errorf("want only x=1, got %v", got)
	}
}
