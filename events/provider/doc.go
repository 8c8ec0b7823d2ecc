// Package provider is a provider's contract as data: one YAML file says how to
// ask for a job, how to read its answers, and how to verify and read its
// webhooks. Nobody writes Go to add a provider.
//
// The package is pure. It builds plain events.Request values and reads plain
// events.Response values; the network, the clock and the credentials are the
// caller's. Expressions are CEL inside ${ … }: a string that is nothing but one
// expression keeps the type of its value, anything else becomes text. They are
// compiled and checked when the file is read, their cost is limited when they
// run, and none can read a secret.
//
// A complete description:
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
//	  id: "${body.report_id}"
//	idempotency: {tokens: true, retention: 24h}
//	status: {path: "/reports/${job_id}", state: "${body.status}", result: "${body.url}"}
//	states: {pending: queued, working: running, done: succeeded, error: failed}
//	webhook:
//	  verify: {preset: standard_webhooks}
//	  job_id: "${body.report_id}"
//	  state: "${body.status}"
//	  dedup: "${headers['webhook-id']}"
//
// What it promises: an answer that proves nothing is ambiguous, a status word
// that is not in the map is never terminal, ids and numbers keep every digit,
// and a signature is checked on the raw bytes before anything is parsed.
package provider
