// Package provider is a provider's contract as data: one YAML file says how to
// ask for a job, how to read the answers, and how to verify and read webhooks.
// Nobody writes Go to add a provider.
//
// The package is pure. It builds plain events.Request values and reads plain
// events.Response values; network, clock and files are the caller's. A
// Description is a checked file, a Provider is a description with the settings
// of one installation:
//
//	d, err := provider.Parse("reports.yaml", data)
//	p, err := provider.New(d, provider.Settings{Name: "reports", …})
//	request, err := p.Create(in)          // the caller sends it
//	answer := p.ReadCreate(response, now) // what the answer proves
//	request, err = p.Status(ref)
//	read := p.ReadStatus(ref, response, now)
//	account, err := p.Verify(header, body, now) // before anything is parsed
//	hooks, err := p.ReadWebhook(header, body)
//
// # A complete description
//
//	version: 1
//	name: reports
//	base_url: https://api.example.com
//	auth: {header: Authorization, prefix: "Bearer ", credential: api_token, required: true}
//	create:
//	  path: /reports
//	  headers: {Idempotency-Key: "${token}"}
//	  body: {range: "${input.range}", notify: "${callback_url}"}
//	  callback: true
//	  id: ${body.report_id}
//	idempotency: {tokens: true, retention: 24h}
//	status: {path: "/reports/${job_id}", id: "${body.report_id}", state: "${body.status}"}
//	states: {pending: queued, working: running, done: succeeded, error: failed}
//	result: {value: "${body.url}"}
//	webhook:
//	  verify: {preset: standard_webhooks}
//	  job_id: ${body.report_id}
//	  state: ${body.status}
//	  dedup: ${headers['webhook-id']}
//
// # Expressions
//
// Strings hold CEL inside ${ … }. A string that is nothing but one expression
// keeps the type of its value; in a longer one the value becomes text. $${ is a
// literal ${. An optional without a value, such as ${input.?size}, leaves its key
// out of a request and reads as empty. The variables are:
//
//	create.path, headers, body               op, token, input, callback_url
//	lookup.path                              op, token
//	status.path                              job_id
//	lookup.found, absent, state              status, headers, body, op, token
//	webhook                                  headers, body
//	everything else that reads an answer     status, headers, body
//
// headers maps lower-case names to first values. Expressions are compiled when
// the file is read, an error has the line and column of the expression, their
// steps are limited when they run, and none can read a secret. Bodies
// have no schema: a path that is not there is an error unless it is asked for
// with .? or has().
//
// # What it promises
//
// An answer that proves nothing is ambiguous. A status word that is not in the
// map is never terminal. Ids and numbers keep every digit. A signature is checked
// on the raw bytes with every secret. The same input gives the same request bytes.
//
// It does not retry, follow, wait or log, and it does not know what was asked or
// read before.
package provider
