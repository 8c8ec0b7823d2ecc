package provider

import "time"

// file is the YAML form of a description. A key that is not here is an error.
// Fields whose comment names a type hold one expression, ${ … }.
type file struct {
	Version     int               `yaml:"version"`
	Name        string            `yaml:"name"`
	BaseURL     string            `yaml:"base_url"`
	Auth        authFile          `yaml:"auth"`
	Create      createFile        `yaml:"create"`
	Idempotency idempotencyFile   `yaml:"idempotency"`
	Lookup      *lookupFile       `yaml:"lookup"`
	Status      *statusFile       `yaml:"status"`
	States      map[string]string `yaml:"states"` // the provider's words and what they mean
	Result      resultFile        `yaml:"result"`
	Webhook     *webhookFile      `yaml:"webhook"`
	Errors      errorsFile        `yaml:"errors"`
	Limits      limitsFile        `yaml:"limits"`
	Deadlines   deadlinesFile     `yaml:"deadlines"`
	Pacing      pacingFile        `yaml:"pacing"`
}

// authFile says which header carries which credential.
type authFile struct {
	Header     string `yaml:"header"`
	Prefix     string `yaml:"prefix"`
	Credential string `yaml:"credential"`
	Required   bool   `yaml:"required"`
}

type createFile struct {
	Method  string            `yaml:"method"` // POST (default), PUT or PATCH
	Path    string            `yaml:"path"`   // text
	Headers map[string]string `yaml:"headers"`
	Body    any               `yaml:"body"` // any JSON shape with texts in it
	// Callback: the request carries callback_url, and the provider pushes there.
	Callback bool   `yaml:"callback"`
	ID       string `yaml:"id"`    // text: the job's id
	State    string `yaml:"state"` // text: the provider's word
	Final    string `yaml:"final"` // condition: the answer is the job's end
}

type idempotencyFile struct {
	// Tokens: the same token never makes a second job within Retention.
	Tokens    bool          `yaml:"tokens"`
	Retention time.Duration `yaml:"retention"` // 0: for ever
	Mismatch  string        `yaml:"mismatch"`  // condition on a refusal: token known with another request
}

type lookupFile struct {
	Path   string `yaml:"path"`   // text
	Found  string `yaml:"found"`  // list of ids
	Absent string `yaml:"absent"` // condition: proves that there is no job
	State  string `yaml:"state"`  // text: the provider's word about the only match
}

// statusFile asks for a job and reads it out of the answer.
type statusFile struct {
	Path         string            `yaml:"path"`    // text
	ID           string            `yaml:"id"`      // text: must be the id asked for
	State        string            `yaml:"state"`   // text: the provider's word
	States       map[string]string `yaml:"states"`  // instead of the common ones
	Detail       string            `yaml:"detail"`  // text: expired, partial or moderated
	Attempt      string            `yaml:"attempt"` // number: re-runs under one id
	Seq          string            `yaml:"seq"`     // number
	At           string            `yaml:"at"`      // RFC 3339 text or Unix seconds
	Total        string            `yaml:"total"`   // number: items
	Completed    string            `yaml:"completed"`
	Failed       string            `yaml:"failed"`
	ErrorCode    string            `yaml:"error_code"`    // text; default: errors.code
	ErrorMessage string            `yaml:"error_message"` // text; default: errors.message
}

type resultFile struct {
	Value string `yaml:"value"` // any value, of a status answer or a final create answer
}

type webhookFile struct {
	Verify verifyFile `yaml:"verify"`
	// Required: the provider is not used without a webhook secret. It is implied
	// where there is no status endpoint.
	Required     bool              `yaml:"required"`
	JobID        string            `yaml:"job_id"`   // text
	State        string            `yaml:"state"`    // text
	States       map[string]string `yaml:"states"`   // instead of the common ones
	Detail       string            `yaml:"detail"`   // text
	Attempt      string            `yaml:"attempt"`  // number
	Seq          string            `yaml:"seq"`      // number
	At           string            `yaml:"at"`       // RFC 3339 text or Unix seconds
	Result       string            `yaml:"result"`   // any value; only where there is no status endpoint
	Delivery     string            `yaml:"delivery"` // text: the sender's id
	Dedup        string            `yaml:"dedup"`    // text: what makes a delivery unique
	Ignore       string            `yaml:"ignore"`   // condition: signed, but about no job (ping, test)
	ErrorCode    string            `yaml:"error_code"`
	ErrorMessage string            `yaml:"error_message"`
	MaxBytes     int64             `yaml:"max_bytes"` // 0: 1 MiB
	Ack          ackFile           `yaml:"ack"`
}

type verifyFile struct {
	Preset       string        `yaml:"preset"`        // standard_webhooks or hub
	Header       string        `yaml:"header"`        // hub
	HeaderPrefix string        `yaml:"header_prefix"` // standard_webhooks; default webhook-
	Tolerance    time.Duration `yaml:"tolerance"`     // standard_webhooks; default 5m
}

type ackFile struct {
	Status      int    `yaml:"status"`       // 0: 200
	ContentType string `yaml:"content_type"` // "": text/plain
	Body        string `yaml:"body"`         // "": ok
}

// errorsFile says what refusals prove. The switches that are on by default are
// pointers, so that absent and false differ.
type errorsFile struct {
	Code    string `yaml:"code"`    // text, of a refusal or a failed job
	Message string `yaml:"message"` // text
	// AuthPrecedesExecution: a 401 or 403 proves that nothing happened.
	AuthPrecedesExecution *bool `yaml:"auth_precedes_execution"`
	// ThrottleUnprocessed: a 429 proves that nothing happened.
	ThrottleUnprocessed *bool `yaml:"throttle_unprocessed"`
	// RejectionFinal: a refusal settles even while an earlier attempt is
	// ambiguous.
	RejectionFinal bool `yaml:"rejection_final"`
}

type limitsFile struct {
	Concurrency int `yaml:"concurrency"` // 0: 32
}

type deadlinesFile struct {
	Create  time.Duration `yaml:"create"`
	Recon   time.Duration `yaml:"recon"`
	Result  time.Duration `yaml:"result"`
	Cancel  time.Duration `yaml:"cancel"`
	Confirm time.Duration `yaml:"confirm"`
	Collect time.Duration `yaml:"collect"`
}

type pacingFile struct {
	PollBase    time.Duration `yaml:"poll_base"`
	PollCap     time.Duration `yaml:"poll_cap"`
	LookupDelay time.Duration `yaml:"lookup_delay"`
}
