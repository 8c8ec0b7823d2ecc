package events

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Histories are told as text, one line a step, so that a person can read them:
//
//	[@<operation>] [+<duration>] <word> <arguments>
//
// The words are those of the switch below. A line that begins with "refused"
// must be an answer that CheckResolution refuses.

// do performs one line on a stage and says what the fold did.
func (s *stage) do(line string) (Verdict, error) {
	f := strings.Fields(line)
	op := testOp
	if len(f) > 0 && strings.HasPrefix(f[0], "@") {
		op, f = OperationID(f[0][1:]), f[1:]
	}
	if len(f) > 0 && strings.HasPrefix(f[0], "+") {
		d, err := time.ParseDuration(f[0][1:])
		if err != nil {
			return "", err
		}
		s.now = s.now.Add(d)
		f = f[1:]
	}
	if len(f) == 0 {
		return "", errors.New("no word")
	}
	w := words{f[1:]}
	switch f[0] {
	case "refused":
		d, err := s.answer(op, words{f[2:]})
		if err != nil {
			return "", err
		}
		if err := s.job(op).CheckResolution(d, ""); err == nil {
			return "", errors.New("want the answer refused, it fits")
		}
		return "", nil
	case "unfolded": // stored; whoever decides now does not know of it
		what, err := s.what(op, f[1], words{f[2:]})
		if err != nil {
			return "", err
		}
		rec := s.record(op, what)
		s.log, s.late = append(s.log, rec), append(s.late, rec)
		return "", nil
	case "fenced": // a decision now, on what is folded, must lose
		if j := s.job(op); j.OpSeq == s.lastOn(OperationSubject(testProvider, op)) {
			return "", errors.New("want the decision fenced, it would stand")
		}
		return "", nil
	case "fold":
		rec := s.late[0]
		s.late = s.late[1:]
		return s.fold(rec), nil
	case "broken", "critical", "unknown":
		return s.addUnreadable(OperationSubject(testProvider, op), f[0]), nil
	case "broken-copy":
		return s.addUnreadable(SettledSubject(testProvider, op, w.number(0)), "broken"), nil
	case "critical-news":
		return s.addUnreadable(JobSubject(testProvider, ref(w.at(0)).Key), "critical"), nil
	}
	what, err := s.what(op, f[0], w)
	if err != nil {
		return "", err
	}
	switch f[0] {
	case "read", "gone", "found", "absent", "unfound", "strange", "defer", "audit":
		s.read[op] = s.now
	}
	return s.add(op, what), nil
}

// lastOn is the last sequence of a subject, as the stream has it.
func (s *stage) lastOn(subject Subject) uint64 {
	var seq uint64
	for _, rec := range s.log {
		if rec.Event.Subject == subject {
			seq = rec.Seq
		}
	}
	return seq
}

// words are the arguments of a line.
type words struct{ list []string }

func (w words) at(i int) string {
	if i < len(w.list) {
		return w.list[i]
	}
	return ""
}

func (w words) number(i int) int {
	n, err := strconv.Atoi(w.at(i))
	if err != nil {
		return 1
	}
	return n
}

func (w words) duration(i int) time.Duration {
	d, err := time.ParseDuration(w.at(i))
	if err != nil {
		return 0
	}
	return d
}

func (w words) or(i int, otherwise string) string {
	if t := w.at(i); t != "" {
		return t
	}
	return otherwise
}

func (w words) has(word string) bool { return slices.Contains(w.list, word) }

// option is the value of an argument of the form name=value, "" if there is none.
func (w words) option(name string) string {
	for _, t := range w.list {
		if v, ok := strings.CutPrefix(t, name+"="); ok {
			return v
		}
	}
	return ""
}

// what makes the payload that a line stands for.
func (s *stage) what(op OperationID, word string, w words) (any, error) {
	for _, part := range []func(OperationID, string, words) (any, error){s.creating, s.remoteWords, s.ending} {
		if d, err := part(op, word, w); d != nil || err != nil {
			return d, err
		}
	}
	return nil, fmt.Errorf("no such word: %s", word)
}

func (s *stage) creating(op OperationID, word string, w words) (any, error) {
	switch word {
	case "prepare":
		return s.prepared(op, w)
	case "attempt":
		return start(w.number(0)), nil
	case "accept":
		return accept(w.number(0), w.at(1)), nil
	case "reject":
		return &Rejected{N: w.number(0), Class: w.or(1, "invalid_request"), Status: 422}, nil
	case "lose":
		return &Ambiguous{N: w.number(0), Class: w.or(1, "timeout")}, nil
	case "unsent":
		return notSend(w.number(0)), nil
	case "throttle":
		return &Throttled{N: w.number(0), RetryAt: s.now.Add(w.duration(1))}, nil
	case "found":
		return find(w.at(0), w.or(1, "lookup")), nil
	case "absent":
		return missing(w.number(0)), nil
	case "unfound":
		return &ReconFailed{Class: "timeout"}, nil
	case "cancel":
		return &CancelRequested{ID: "req-1", By: w.or(0, "dana"), Reason: "ordered by mistake"}, nil
	case "cancel-call":
		n := 1
		if calls := s.job(op).CancelCalls; len(calls) > 0 {
			n = calls[len(calls)-1].N + 1
		}
		return &CancelStarted{N: n, Remote: ref(w.at(0))}, nil
	case "cancel-ack":
		return &CancelAcknowledged{N: w.number(0), Status: 202}, nil
	case "cancel-refused":
		return &CancelRefused{N: w.number(0), Why: w.or(1, RefusalTerminal), Status: 409}, nil
	case "cancel-lost":
		return &CancelAmbiguous{N: w.number(0), Class: "timeout"}, nil
	case "cancel-unsent":
		return &CancelNotSent{N: w.number(0), Class: "dial", RetryAt: s.now.Add(w.duration(1))}, nil
	}
	return nil, nil
}

// prepared reads a contract and deadlines from an intent's line.
func (s *stage) prepared(op OperationID, w words) (any, error) {
	var c Contract
	flags := map[string]*bool{
		"status": &c.Status, "token": &c.Idempotent, "lookup": &c.Lookup, "callback": &c.Callback, "result": &c.Result,
		"once": &c.ResultOnce, "cancel": &c.Cancel, "cancel-again": &c.CancelIdempotent, "review-late": &c.ReviewLate,
		"four-eyes": &c.FourEyes, "reject-final": &c.RejectAuthoritative,
	}
	for _, t := range w.list {
		name, _, option := strings.Cut(t, "=")
		switch {
		case option && (name == "retention" || name == "start_by"):
		case !option && flags[name] != nil:
			*flags[name] = true
		default:
			return nil, fmt.Errorf("no such property of a contract: %s", t)
		}
	}
	if v := w.option("retention"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			return nil, err
		}
		c.TokenRetention = Duration(d)
	}
	p := prepare(op, c)
	if v := w.option("start_by"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			return nil, err
		}
		p.Deadlines.StartBy = s.now.Add(d)
	}
	return p, nil
}

func (s *stage) remoteWords(_ OperationID, word string, w words) (any, error) {
	reading := func(o *Observed) *Observed {
		o.Reading.Attempt, _ = strconv.Atoi(w.option("run")) // none is the first run
		o.Reading.Detail = w.option("detail")
		return o
	}
	switch word {
	case "webhook":
		o := reading(hook(w.at(0), RemoteState(w.at(1))))
		if v := w.option("proves"); v != "" {
			o.Reference = &Reference{Operation: OperationID(v), Proven: true}
		}
		return o, nil
	case "read":
		return reading(read(w.at(0), RemoteState(w.at(1)))), nil
	case "answer-says":
		o := reading(read(w.at(0), RemoteState(w.at(1))))
		o.Reading.Source = SourceCreate
		return o, nil
	case "gone":
		return gone(w.at(0)), nil
	case "strange":
		return &Unrecognised{Remote: ref(w.at(0)), Status: w.at(1), Source: SourcePoll}, nil
	case "defer":
		return &PollDeferred{Remote: ref(w.at(0)), Until: s.now.Add(w.duration(1)), Reason: "retry_after"}, nil
	case "audit":
		return &PollAudit{Remote: ref(w.at(0)), Count: 3, Since: s.now}, nil
	case "orphan-expired":
		return &OrphanExpired{Remote: ref(w.at(0))}, nil
	case "hold":
		return &Held{Account: DefaultAccount, Reason: w.or(0, "credentials"), Status: 401}, nil
	case "release":
		return &Released{Account: DefaultAccount, Reason: w.or(0, "credentials changed")}, nil
	}
	return nil, nil
}

func (s *stage) ending(op OperationID, word string, w words) (any, error) {
	switch word {
	case "passed":
		gen, _ := s.job(op).lastFired(Clock(w.at(0)))
		return pass(Clock(w.at(0)), gen+1), nil
	case "collect":
		return &CollectStarted{G: w.number(0), N: w.number(1)}, nil
	case "stored":
		return keep(w.number(0), `{"ok":true}`), nil
	case "invalid":
		return &ResultInvalid{G: w.number(0), N: 1, Rule: w.or(1, "schema")}, nil
	case "unavailable":
		return &ResultUnavailable{G: w.number(0), N: w.number(1), Final: w.has("final"), Reason: "expired"}, nil
	case "settle":
		g := 1
		if last := s.job(op).settlement(); last != nil {
			g = last.G + 1
		}
		return settleNow(g), nil
	case "publish":
		return publish(s.job(op).settlement().G), nil
	case "ask":
		for _, reason := range s.job(op).Questions() {
			if j := s.job(op); j.review(reason) == nil {
				return &ReviewOpened{ID: j.ReviewID(reason), Reason: reason, State: j.State}, nil
			}
		}
		return nil, errors.New("there is nothing to ask")
	case "answer":
		d, err := s.answer(op, w)
		if err != nil {
			return nil, err
		}
		return d, s.job(op).CheckResolution(d, "")
	case "resolve": // as answer, whether it fits or not
		return s.answer(op, w)
	case "asked":
		return &ReviewOpened{ID: s.job(op).ReviewID(w.at(0)), Reason: w.at(0), State: StateNeedsReview}, nil
	case "settled-as":
		st := State(w.at(0))
		return &Settled{G: w.number(1), State: st, Outcome: OutcomeOf(st), Reason: WhyConfirmed, Evidence: []uint64{1}, SubmittedAt: s.now}, nil
	case "note":
		return &Note{By: "dana", Text: strings.Join(w.list, " ")}, nil
	case "archived":
		return samples()[TypeArchived].Data, nil
	case "archive":
		return s.job(op).Archive(len(s.log), strings.Repeat("e", 64), "archive/op_1")
	case "effect-claim":
		return &EffectClaimed{Name: w.at(0), G: w.number(1), N: w.number(2)}, nil
	case "effect-failed":
		return &EffectAttempted{Name: w.at(0), G: w.number(1), N: w.number(2), Class: "server_error", RetryAt: s.now.Add(time.Minute)}, nil
	case "effect-done":
		return &EffectDone{Name: w.at(0), G: w.number(1), N: w.number(2), Status: 200}, nil
	case "effect-dead":
		return &EffectDead{Name: w.at(0), G: w.number(1), N: w.number(2), Reason: "gave up"}, nil
	}
	return nil, nil
}

// answer makes a person's answer to the newest open question.
func (s *stage) answer(op OperationID, w words) (*ReviewResolved, error) {
	j := s.job(op)
	d := &ReviewResolved{ID: "none:1", Action: Resolution(w.at(0)), By: "robin", Note: "looked at it"}
	if by := w.option("by"); by != "" {
		d.By = by
	}
	for _, r := range j.OpenReviews() {
		if d.ID == "none:1" || slices.Contains(j.Answers(r.Reason), d.Action) {
			d.ID = r.ID
		}
	}
	switch d.Action {
	case ResolveBind, ResolveForeignCancel:
		r := ref(w.at(1))
		d.Remote = &r
	case ResolveAbsent:
		if n := len(j.Attempts); n > 0 {
			d.Covers = j.Attempts[n-1].N
		}
	case ResolveExtend:
		d.Clock, d.Until = j.stopped(), s.now.Add(w.duration(1))
		if d.Clock == "" {
			d.Clock = ClockResult
		}
	case ResolveRetry:
		d.G = 1
		if n := len(j.Results); n > 0 {
			d.G = j.Results[n-1].G + 1
		}
	case ResolveWaive:
		d.G = max(1, len(j.Results))
	case ResolveClose:
		d.Disposition = Outcome(w.or(1, string(OutcomeFailed)))
	case ResolveAcknowledge:
		if last := j.settlement(); last != nil {
			d.G = last.G
		}
		if w.at(1) != "facts" {
			d.State = State(w.at(1))
		}
	case ResolveDismiss:
		if n, err := strconv.ParseUint(w.at(1), 10, 64); err == nil {
			d.Event = n
		} else if w.at(1) != "" {
			r := ref(w.at(1))
			d.Remote = &r
		}
	default:
		return nil, fmt.Errorf("no such resolution: %s", w.at(0))
	}
	return d, nil
}

// addUnreadable appends what this code cannot read: a broken event, or one of a
// type from elsewhere.
func (s *stage) addUnreadable(subject Subject, kind string) Verdict {
	s.seq++
	rec := Recorded{Seq: s.seq, At: s.now, Event: Event{Subject: subject}, Err: ErrInvalidEvent}
	if kind != "broken" {
		rec.Err = ErrUnknownType
		rec.Event.Critical = kind == "critical"
	}
	s.log = append(s.log, rec)
	return s.fold(rec)
}

// trace says where an operation stands and what it owes, on one line.
func (s *stage) trace(op OperationID) string {
	j := s.job(op)
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", j.State, j.Why)
	if len(j.Evidence) > 0 {
		fmt.Fprintf(&b, " on %s", strings.Trim(fmt.Sprint(j.Evidence), "[]"))
	}
	fmt.Fprintf(&b, "; %s", j.Outcome)
	if c := j.CancelStatus(); c != "" {
		fmt.Fprintf(&b, ", cancel %s", c)
	}
	a := s.next(op, s.read[op])
	fmt.Fprintf(&b, "; next %s", s.describe(a))
	return b.String()
}

func (s *stage) describe(a Action) string {
	if a.Kind == ActNone {
		return "nothing"
	}
	text := string(a.Kind)
	switch a.Kind {
	case ActDeadline:
		text += " " + string(a.Clock)
	case ActReview:
		text += " " + a.Review
	case ActCreate, ActExpireLease, ActExpireCancel:
		text += " " + strconv.Itoa(a.N)
	case ActCancel:
		text += " " + strconv.Itoa(a.N) + " " + a.Remote.ID
	case ActCollect, ActExpireCollect:
		text += fmt.Sprintf(" %d of g%d", a.N, a.G)
	case ActSettle, ActAnnounce:
		text += " g" + strconv.Itoa(a.G)
	case ActPoll, ActBind:
		text += " " + a.Remote.ID
	}
	if d := a.At.Sub(s.now).Round(time.Second); d > 0 {
		text += " in " + d.String()
	}
	return text
}
