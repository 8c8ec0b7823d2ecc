package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// remote is the provider: its jobs, and its book of every request.
type remote struct {
	w       *world
	jobs    []*remoteJob
	creates []remoteCreate
	reads   int
	frozen  bool // a call after this is a violation: the installation is halted
}

// remoteJob is one job, and how it will go.
type remoteJob struct {
	id, reference string
	token         string // that made it
	callback      string
	created       time.Time
	visible       time.Time // reads and look-ups know it from then on
	ends          time.Time // of the last run
	fails         time.Time // of the first run, when it is run again; zero: one run
	end           events.RemoteState
}

// remoteCreate is one line of the book: a create request that arrived.
type remoteCreate struct {
	at        time.Time
	operation string // that the token or reference names
	body      string
	status    int
	job       string
}

// state is where a job stands, and its run.
func (j *remoteJob) state(now time.Time) (events.RemoteState, int) {
	run := 0
	began := j.created
	if !j.fails.IsZero() {
		if now.Before(j.fails) {
			return events.RemoteRunning, 0
		}
		if now.Before(j.fails.Add(20 * time.Second)) {
			return events.RemoteFailed, 0
		}
		run, began = 1, j.fails.Add(20*time.Second)
	}
	switch {
	case !now.Before(j.ends):
		return j.end, run
	case now.Before(began.Add(2 * time.Second)):
		return events.RemoteQueued, run
	default:
		return events.RemoteRunning, run
	}
}

// call is one exchange as the caller sees it: what may go wrong on the way, and
// the provider's or the target's answer.
func (w *world) call(ctx context.Context, r events.Request, skipSendBy bool) events.Response {
	if w.point("call", false) != nil {
		return events.Response{Failure: events.CallNotSent, Detail: "killed"}
	}
	if !skipSendBy && !r.SendBy.IsZero() && w.now.After(r.SendBy) {
		return events.Response{Failure: events.CallNotSent, Detail: "late"}
	}
	h := &w.habits
	handle := w.remote.handle
	if strings.HasPrefix(r.URL, targetURL) {
		handle = w.target.handle
	}
	answer := events.Response{}
	switch timeout := r.Timeout; {
	case w.chance(h.unsent):
		answer = events.Response{Failure: events.CallNotSent, Detail: "dial"}
	case w.chance(h.vanish):
		w.park(w.now.Add(timeout), nil)
		answer = events.Response{Failure: events.CallTimeout}
	case r.Method == http.MethodPost && handle != nil && w.chance(h.late):
		w.spawnLate(r, handle)
		w.park(w.now.Add(timeout), nil)
		answer = events.Response{Failure: events.CallTimeout}
	default:
		answer = handle(r)
		if w.chance(h.dropAnswer) {
			answer = events.Response{Failure: events.CallBroken}
		} else if w.chance(h.garble) {
			answer.Body = []byte(`{"id": "tr`)
		}
	}
	if w.point("call", true) != nil {
		return events.Response{Failure: events.CallBroken, Detail: "killed"}
	}
	w.receive(r, answer)
	return answer
}

// received is a create answer that reached its caller whole.
type received struct {
	operation, job string
	proc           *process
}

func (w *world) receive(r events.Request, answer events.Response) {
	var out struct {
		ID string `json:"id"`
	}
	var in struct {
		Reference string `json:"reference"`
	}
	if r.Method != http.MethodPost || answer.Status/100 != 2 || !strings.HasPrefix(r.URL, providerURL) {
		return
	}
	if json.Unmarshal(answer.Body, &out) == nil && json.Unmarshal(r.Body, &in) == nil && out.ID != "" {
		w.received = append(w.received, received{in.Reference, out.ID, w.current.proc})
	}
}

// spawnLate lets a request arrive after its caller gave up: it was on the wire.
func (w *world) spawnLate(r events.Request, handle func(events.Request) events.Response) {
	at := w.now.Add(time.Duration(w.rng.Int64N(int64(r.Timeout))))
	w.spawn("late request", nil, func(*actor) {
		w.park(at, nil)
		handle(r)
	})
}

// handle answers one request.
func (m *remote) handle(r events.Request) events.Response {
	w := m.w
	if m.frozen && w.current.proc != nil { // what was on the wire before arrives all the same
		w.violate("I24", "a call to the provider after the stream had lost history: %s %s", r.Method, r.URL)
	}
	if !strings.HasSuffix(r.SecretValue.Reveal(), credential) {
		w.violate("I0", "a request without the credential")
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		w.violate("I0", "a request to %q", r.URL)
		return events.Response{Status: 400}
	}
	switch id, one := strings.CutPrefix(u.Path, "/jobs/"); {
	case r.Method == http.MethodPost:
		return m.create(r)
	case one:
		return m.read(id)
	default:
		return m.find(u.Query().Get("reference"))
	}
}

func reply(status int, v any) events.Response {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own literals
	}
	return events.Response{Status: status, Body: b, Header: map[string][]string{"Content-Type": {"application/json"}}}
}

func (m *remote) create(r events.Request) events.Response {
	w, h := m.w, &m.w.habits
	var in struct {
		Reference string          `json:"reference"`
		Callback  string          `json:"callback_url"`
		Input     json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(r.Body, &in); err != nil {
		return reply(400, map[string]any{"error": "json"})
	}
	token := r.Header["Idempotency-Key"]
	line := remoteCreate{at: w.now, operation: in.Reference, body: string(r.Body) + "|" + token}
	defer func() { m.creates = append(m.creates, line) }()
	w.checkCreate(line)
	answer := func(status int, v any) events.Response { line.status = status; return reply(status, v) }
	if token != "" && !h.blindToTokens {
		for _, j := range m.jobs {
			if j.token == token && (h.forgets == 0 || w.now.Before(j.created.Add(h.forgets))) {
				line.job = j.id
				return answer(200, map[string]any{"id": j.id})
			}
		}
	}
	switch {
	case w.chance(h.throttle):
		return answer(429, map[string]any{"error": "slow_down"})
	case w.chance(h.busy):
		return answer(503, map[string]any{"error": "busy"})
	case w.refuses(in.Reference):
		return answer(400, map[string]any{"error": "invalid"})
	}
	j := &remoteJob{
		id: fmt.Sprintf("job-%d", len(m.jobs)+1), reference: in.Reference, token: token, callback: in.Callback, created: w.now,
		visible: w.now.Add(h.lag), ends: w.now.Add(time.Second + time.Duration(w.rng.Int64N(int64(h.duration)))),
		end: []events.RemoteState{events.RemoteSucceeded, events.RemoteSucceeded, events.RemoteFailed, events.RemoteCancelled}[w.rng.IntN(4)],
	}
	if w.chance(h.rerun) {
		j.fails = j.created.Add(5 * time.Second)
		j.ends = j.ends.Add(40 * time.Second)
	}
	m.jobs = append(m.jobs, j)
	line.job = j.id
	m.push(j)
	if w.chance(h.busy) {
		return answer(502, map[string]any{"error": "gateway"}) // made, and told as failed
	}
	return answer(201, map[string]any{"id": j.id})
}

func (m *remote) read(id string) events.Response {
	m.reads++
	w := m.w
	if w.chance(w.habits.busy) {
		return reply(503, map[string]any{"error": "busy"})
	}
	for _, j := range m.jobs {
		if j.id != id {
			continue
		}
		if w.now.Before(j.visible) {
			return reply(404, map[string]any{"error": "unknown"})
		}
		state, run := j.state(w.now)
		out := map[string]any{"id": id, "state": state, "run": run}
		if state == events.RemoteSucceeded {
			out["output"] = map[string]any{"of": id}
		}
		return reply(200, out)
	}
	return reply(404, map[string]any{"error": "unknown"})
}

func (m *remote) find(reference string) events.Response {
	m.reads++
	if m.w.chance(m.w.habits.busy) {
		return reply(503, map[string]any{"error": "busy"})
	}
	items := []any{}
	for _, j := range m.jobs {
		if j.reference == reference && !m.w.now.Before(j.visible) {
			items = append(items, map[string]any{"id": j.id})
		}
	}
	return reply(200, map[string]any{"items": items})
}

// push plans the webhooks of a job: lost, late, twice, out of order, and now and
// then one that says the job had ended when it had not.
func (m *remote) push(j *remoteJob) {
	h := &m.w.habits
	if h.mute || j.callback == "" {
		return
	}
	m.hook(j, events.RemoteRunning, 0, j.created.Add(2*time.Second))
	if m.w.chance(h.lie) {
		m.hook(j, events.RemoteFailed, 0, j.created.Add(3*time.Second))
	}
	if !j.fails.IsZero() {
		m.hook(j, events.RemoteFailed, 0, j.fails)
		m.hook(j, j.end, 1, j.ends)
		return
	}
	m.hook(j, j.end, 0, j.ends)
}

// hook sends one webhook, with repeats until it is answered or given up.
func (m *remote) hook(j *remoteJob, state events.RemoteState, run int, at time.Time) {
	w, h := m.w, &m.w.habits
	w.deliveries++
	delivery := fmt.Sprintf("d-%d", w.deliveries)
	copies := 1
	if w.chance(h.twiceHook) {
		copies = 2
	}
	if w.chance(h.dropHook) {
		copies = 0
	}
	body, err := json.Marshal(map[string]any{"id": j.id, "state": state, "run": run, "delivery": delivery})
	if err != nil {
		panic(err) // our own literals
	}
	for range copies {
		when := at.Add(time.Duration(w.rng.Int64N(int64(h.delayHook) + 1)))
		w.spawn("webhook "+delivery, nil, func(*actor) {
			w.park(when, nil)
			for range 4 { // a sender gives up
				if m.deliver(j, delivery, body) {
					return
				}
				w.park(w.now.Add(20*time.Second), nil)
			}
		})
	}
}

// deliver posts a webhook to a process that lives and reports whether it was
// answered 2xx: from then on the sender relies on it.
func (m *remote) deliver(j *remoteJob, delivery string, body []byte) bool {
	w := m.w
	p := w.anyProcess()
	if p == nil {
		return false
	}
	mac := hmac.New(sha256.New, []byte(hookSecret))
	_, _ = mac.Write(body) // a hash never fails
	req := httptest.NewRequestWithContext(p.ctx, http.MethodPost, strings.TrimPrefix(j.callback, publicURL), bytes.NewReader(body))
	req.Header.Set(hookHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
	out := httptest.NewRecorder()
	a := w.current
	a.proc = p // it dies with the process that answers
	w.doors[p].Webhooks().ServeHTTP(out, req)
	dead := a.dead()
	a.proc = nil
	ok := out.Code/100 == 2 && !dead
	if ok {
		w.acknowledged = append(w.acknowledged, delivery)
	}
	return ok
}
