package provider

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

func body1KB() []byte {
	return fmt.Appendf(nil, `{"id":"ufawqhfynnddngldkgtslldrkq","status":"processing","logs":%q,"metrics":{"predict_time":4.48}}`, strings.Repeat("x", 930))
}

func BenchmarkVerify1KB(b *testing.B) {
	p := described(b, "replicate-prediction")
	body := body1KB()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(standardSecret, "whsec_"))
	if err != nil {
		b.Fatal(err)
	}
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "m.%d.%s", testNow.Unix(), body)
	h := Header{"Webhook-Id": {"m"}, "Webhook-Timestamp": {fmt.Sprint(testNow.Unix())}, "Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))}}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Verify(h, body, testNow); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadWebhook1KB(b *testing.B) {
	p := described(b, "replicate-prediction")
	body := body1KB()
	h := Header{"Webhook-Id": {"m"}, "Content-Type": {"application/json"}, "User-Agent": {"x"}}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.ReadWebhook(h, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	p := described(b, "replicate-prediction")
	in := CreateInput{Operation: "op_1", Token: "op_1", Input: fmt.Appendf(nil, `{"version":"v","input":%s}`, bytes.TrimSpace(body1KB()))}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Create(in); err != nil {
			b.Fatal(err)
		}
	}
}
