package main

import (
	"math/rand/v2"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// habits are what one schedule is made of. Every probability is of one occasion.
// A share of them is zero in each schedule: faults that never occur alone hide
// each other.
type habits struct {
	provider   string // name of a description, see descriptions
	operations int
	processes  int // 1 or 2
	workers    int // of each reconciler

	kill, deaf, lost, swap float64 // a port call: kill before or after it, no effect, lost answer, switch
	pause                  float64 // a port call: the process stops for a while
	pauseMax               time.Duration

	unsent, vanish, dropAnswer, garble, busy float64 // a call to the provider
	late                                     float64 // a request that arrives after its caller gave up
	reject, throttle                         float64
	forgets                                  time.Duration // of tokens, 0: never
	blindToTokens                            bool          // ignores them, whatever the description says
	lag                                      time.Duration // of the look-up and of reads just after a create
	duration                                 time.Duration // of a job, at most
	rerun, lie                               float64
	mute                                     bool // webhooks are never sent
	dropHook, twiceHook                      float64
	delayHook                                time.Duration

	targetKeyed              bool // the target honours idempotency keys
	targetDrops, targetBusy  float64
	cancels, twice, mismatch float64 // of an operation
	truncate                 float64 // of a schedule: a power cut loses a tail that the bucket has folded
	replicated               bool
}

func draw(r *rand.Rand) habits {
	// some is 0 in most schedules, else up to most.
	some := func(most float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return most * r.Float64()
	}
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	h := habits{
		provider: []string{"token", "token", "seek", "push"}[r.IntN(4)], operations: 1 + r.IntN(3), processes: 1 + r.IntN(2), workers: 1 + r.IntN(2),
		kill: some(0.12), deaf: some(0.05), lost: some(0.08), swap: 0.1 + 0.5*r.Float64(), pause: some(0.02), pauseMax: upTo(3 * time.Minute),
		unsent: some(0.2), vanish: some(0.2), dropAnswer: some(0.3), garble: some(0.1), busy: some(0.3), late: some(0.1), reject: some(0.1), throttle: some(0.2),
		lag: upTo(4 * time.Second), duration: time.Second + upTo(10*time.Minute), rerun: some(0.05), lie: some(0.15), mute: r.IntN(6) == 0,
		dropHook: some(0.5), twiceHook: some(0.5), delayHook: upTo(time.Minute),
		targetKeyed: r.IntN(4) > 0, targetDrops: some(0.3), targetBusy: some(0.3), cancels: some(0.3), twice: some(0.5), mismatch: some(0.2),
		replicated: r.IntN(2) == 0,
	}
	if r.IntN(50) == 0 {
		h.truncate = 1
	}
	return h
}

// The virtual day. It lies far ahead of the real one, so that a context with a
// virtual deadline never ends in real time.
var dawn = time.Date(2190, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	masterKey    = "canary-master-key-0123456789abcdef"
	credential   = "canary-credential-0123456789abcdef"
	hookSecret   = "canary-webhook-secret-0123456789ab"
	effectSecret = "Y2FuYXJ5LWVmZmVjdC1zZWNyZXQtMDEyMzQ1Njc4OQ=="
	publicURL    = "https://pawl.test"
	providerURL  = "https://provider.test"
	targetURL    = "https://target.test/effects"
	hookHeader   = "X-Signature"
)

const simProvider = events.Provider("acme")

// descriptions are three kinds of providers: one that honours tokens, one that is
// searched by our reference, one that offers nothing but pushes.
var descriptions = map[string]string{
	"token": `
version: 1
name: token
auth: {header: Authorization, prefix: "Bearer ", credential: api_token}
create:
  path: /jobs
  headers: {Idempotency-Key: "${token}"}
  body: {reference: "${op}", input: "${input}", callback_url: "${callback_url}"}
  callback: true
  id: ${body.id}
idempotency: {tokens: true, retention: 2h, mismatch: "${status == 422 && body.error == 'token_reused'}"}
status: {path: "/jobs/${job_id}", id: "${body.id}", state: "${body.state}", attempt: "${body.run}"}
states: {queued: queued, running: running, succeeded: succeeded, failed: failed, cancelled: cancelled}
result: {value: "${body.?output.orValue(null)}"}
webhook:
  verify: {preset: hub, header: X-Signature}
  job_id: ${body.id}
  state: ${body.state}
  attempt: ${body.run}
  delivery: ${body.delivery}
  dedup: ${body.delivery}
errors: {code: "${body.?error}"}
deadlines: {create: 5m, recon: 30m, result: 40m, confirm: 3m, collect: 3m}
`,
	"seek": `
version: 1
name: seek
auth: {header: Authorization, prefix: "Bearer ", credential: api_token}
create:
  path: /jobs
  body: {reference: "${token}", input: "${input}", callback_url: "${callback_url}"}
  callback: true
  id: ${body.id}
lookup:
  path: /jobs?reference=${token}
  found: ${body.items.map(i, i.id)}
  absent: ${status == 200 && size(body.items) == 0}
status: {path: "/jobs/${job_id}", id: "${body.id}", state: "${body.state}", attempt: "${body.run}"}
states: {queued: queued, running: running, succeeded: succeeded, failed: failed, cancelled: cancelled}
webhook:
  verify: {preset: hub, header: X-Signature}
  job_id: ${body.id}
  state: ${body.state}
  attempt: ${body.run}
  delivery: ${body.delivery}
  dedup: ${body.delivery}
errors: {code: "${body.?error}"}
pacing: {lookup_delay: 6s}
deadlines: {create: 5m, recon: 30m, result: 40m, confirm: 3m, collect: 3m}
`,
	"push": `
version: 1
name: push
auth: {header: Authorization, prefix: "Bearer ", credential: api_token}
create:
  path: /jobs
  body: {reference: "${op}", input: "${input}", callback_url: "${callback_url}"}
  callback: true
  id: ${body.id}
states: {queued: queued, running: running, succeeded: succeeded, failed: failed, cancelled: cancelled}
webhook:
  verify: {preset: hub, header: X-Signature}
  job_id: ${body.id}
  state: ${body.state}
  delivery: ${body.delivery}
  dedup: ${body.delivery}
errors: {code: "${body.?error}"}
deadlines: {create: 5m, recon: 20m, result: 40m, confirm: 3m, collect: 3m}
`,
}
