package provider

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/pawl-dev/pawl/events"
)

// Without verification anybody who knows the URL ends our operations.

type vector struct {
	Name         string       `json:"name"`
	Preset       string       `json:"preset"`
	Header       string       `json:"header"`
	HeaderPrefix string       `json:"header_prefix"`
	Secrets      []string     `json:"secrets"`
	Headers      Header       `json:"headers"`
	Body         string       `json:"body"`
	Now          int64        `json:"now"`
	Expect       string       `json:"expect"`
	Reason       VerifyReason `json:"reason"`
}

func (v vector) verifier(t *testing.T) *Verifier {
	t.Helper()
	var secrets []events.Secret
	for _, s := range v.Secrets {
		secrets = append(secrets, events.NewSecret(s))
	}
	ver, err := NewVerifier(Scheme{Preset: v.Preset, Header: v.Header, HeaderPrefix: v.HeaderPrefix}, secrets)
	if err != nil {
		t.Fatalf("want a verifier, got %v", err)
	}
	return ver
}

func (v vector) judge(t *testing.T) {
	t.Helper()
	err := v.verifier(t).Verify(v.Headers, []byte(v.Body), time.Unix(v.Now, 0))
	var ve *VerifyError
	switch {
	case v.Expect == "valid" && err != nil:
		t.Errorf("want valid, got %v", err)
	case v.Expect != "valid" && !errors.As(err, &ve):
		t.Errorf("want %s, got %v", v.Reason, err)
	case v.Expect != "valid" && ve.Reason != v.Reason:
		t.Errorf("want %s, got %s", v.Reason, ve.Reason)
	}
}

func vectors(t testing.TB) []vector {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []vector
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestVerifyVectors(t *testing.T) {
	t.Parallel()
	reasons := map[VerifyReason]bool{}
	for _, v := range vectors(t) {
		reasons[v.Reason] = true
		t.Run(v.Name, func(t *testing.T) { t.Parallel(); v.judge(t) })
	}
	for _, r := range []VerifyReason{ReasonMissingHeader, ReasonMalformedSignature, ReasonMalformedTimestamp, ReasonStaleTimestamp, ReasonFutureTimestamp, ReasonSignatureMismatch, ReasonUnsupportedVersion} {
		if !reasons[r] {
			t.Errorf("want a vector for %s, got none", r)
		}
	}
}

// TestPublishedVectors judges vectors that senders publish. They are not in the
// repository; PAWL_VECTORS names the folder.
func TestPublishedVectors(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("PAWL_VECTORS")
	if dir == "" {
		t.Skip("PAWL_VECTORS is not set")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var raw struct {
			Scheme  string            `json:"scheme"`
			Secret  string            `json:"secret"`
			Secrets []string          `json:"secrets"`
			Headers map[string]string `json:"headers"`
			Body    string            `json:"body"`
			Base64  *string           `json:"body_base64"`
			Now     int64             `json:"now"`
			Expect  string            `json:"expect"`
			Reason  VerifyReason      `json:"reason"`
		}
		if json.Unmarshal(data, &raw) != nil {
			continue // the index
		}
		v := vector{Secrets: raw.Secrets, Headers: Header{}, Body: raw.Body, Now: raw.Now, Expect: raw.Expect, Reason: raw.Reason}
		if raw.Secret != "" {
			v.Secrets = append(v.Secrets, raw.Secret)
		}
		if raw.Base64 != nil {
			b, err := base64.StdEncoding.DecodeString(*raw.Base64)
			if err != nil {
				t.Fatal(err)
			}
			v.Body = string(b)
		}
		for k, h := range raw.Headers {
			v.Headers[k] = []string{h}
		}
		switch raw.Scheme {
		case "standard-webhooks":
			v.Preset, v.HeaderPrefix = PresetStandardWebhooks, "webhook-"
			if _, n := v.Headers.only("svix-id"); n > 0 {
				v.HeaderPrefix = "svix-"
			}
		case "github-hub256":
			v.Preset, v.Header = PresetHub, "X-Hub-Signature-256"
		default:
			continue
		}
		judged++
		t.Run(filepath.Base(file), func(t *testing.T) { v.judge(t) })
	}
	if judged == 0 {
		t.Errorf("want vectors in %s, got none", dir)
	}
}

// TestVerifyMutation changes one byte of each valid body at a time.
func TestVerifyMutation(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		if v.Expect != "valid" {
			continue
		}
		ver := v.verifier(t)
		for i := range v.Body {
			body := []byte(v.Body)
			body[i] ^= 1
			if ver.Verify(v.Headers, body, time.Unix(v.Now, 0)) == nil {
				t.Errorf("%s: want byte %d to matter, got valid", v.Name, i)
			}
		}
		if ver.Verify(v.Headers, append([]byte(v.Body), ' '), time.Unix(v.Now, 0)) == nil {
			t.Errorf("%s: want one more byte to matter, got valid", v.Name)
		}
	}
}

// TestVerifyOracle lets the reference implementation sign and judge.
func TestVerifyOracle(t *testing.T) {
	t.Parallel()
	oracle, err := standardwebhooks.NewWebhook(standardSecret)
	if err != nil {
		t.Fatal(err)
	}
	ver, err := NewVerifier(Scheme{Preset: PresetStandardWebhooks}, []events.Secret{events.NewSecret(standardSecret)})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now() // the oracle has no other clock
	for i, body := range []string{"", "{}", "{\"a\":1}\r\n", "\x00\xff", "é"} {
		id := fmt.Sprintf("msg_%d", i)
		sig, err := oracle.Sign(id, now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{}
		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", fmt.Sprint(now.Unix()))
		h.Set("webhook-signature", sig)
		if err := ver.Verify(Header(h), []byte(body), now); err != nil {
			t.Errorf("%q: want what the oracle signed to be valid, got %v", body, err)
		}
		for _, value := range []string{sig, sig + "A", "v1," + sig, "v1a" + sig[2:], sig + " v2,x", "v1,AAAA " + sig} {
			h.Set("webhook-signature", value)
			want, got := oracle.Verify([]byte(body), h), ver.Verify(Header(h), []byte(body), now)
			if (want == nil) != (got == nil) {
				t.Errorf("signature %q: oracle says %v, we say %v", value, want, got)
			}
		}
	}
}

func TestNewVerifierRefuses(t *testing.T) {
	t.Parallel()
	std := Scheme{Preset: PresetStandardWebhooks}
	hub := Scheme{Preset: PresetHub, Header: "X-S"}
	cases := map[string]struct {
		scheme  Scheme
		secrets []string
	}{
		"no secret":       {std, nil},
		"too many":        {hub, []string{"1", "2", "3", "4", "5", "6"}},
		"empty":           {hub, []string{""}},
		"not base64":      {std, []string{"whsec_!!!"}},
		"short key":       {std, []string{"whsec_AAAA"}},
		"second is bad":   {std, []string{standardSecret, "whsec_AAAA"}},
		"unknown preset":  {Scheme{Preset: "stripe"}, []string{"x"}},
		"hub header":      {Scheme{Preset: PresetHub}, []string{"x"}},
		"hub tolerance":   {Scheme{Preset: PresetHub, Header: "X", Tolerance: 1}, []string{"x"}},
		"standard header": {Scheme{Preset: PresetStandardWebhooks, Header: "X"}, []string{standardSecret}},
		"negative":        {Scheme{Preset: PresetStandardWebhooks, Tolerance: -1}, []string{standardSecret}},
	}
	for name, c := range cases {
		var secrets []events.Secret
		for _, s := range c.secrets {
			secrets = append(secrets, events.NewSecret(s))
		}
		if _, err := NewVerifier(c.scheme, secrets); err == nil {
			t.Errorf("%s: want an error, got none", name)
		}
	}
}

func TestVerifyNamesTheAccount(t *testing.T) {
	t.Parallel()
	d := builtin(t, "replicate-prediction")
	p, err := New(d, Settings{Name: "p1", Account: "team-a", Credentials: map[string]events.Secret{"api_token": events.NewSecret("t")}, WebhookSecrets: []events.Secret{events.NewSecret(standardSecret)}})
	if err != nil {
		t.Fatal(err)
	}
	v := vectors(t)[0]
	account, err := p.Verify(v.Headers, []byte(v.Body), time.Unix(v.Now, 0))
	if err != nil || account != "team-a" {
		t.Errorf("want team-a, got %q, %v", account, err)
	}
	if account, err := p.Verify(v.Headers, []byte(v.Body+"x"), time.Unix(v.Now, 0)); err == nil || account != "" {
		t.Errorf("want no account for a forged message, got %q, %v", account, err)
	}
}
