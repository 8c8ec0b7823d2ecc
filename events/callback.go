package events

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"io"
	"strings"
)

// CallbackPath is where providers push to, below the public URL:
// /webhooks/{provider}/{operation}/{mac}. The mac is HMAC-SHA256 over provider,
// account and operation under the installation's master key: who holds the URL
// was given it by a create request of ours. Together with the provider's own
// signature it proves which operation a job belongs to.
func CallbackPath(key Secret, p Provider, account string, op OperationID) string {
	return "/webhooks/" + string(p) + "/" + string(op) + "/" + callbackMac(key, p, account, op)
}

// VerifyCallback reports, in constant time, whether mac belongs to the
// operation.
func VerifyCallback(key Secret, p Provider, account string, op OperationID, mac string) bool {
	return hmac.Equal([]byte(mac), []byte(callbackMac(key, p, account, op)))
}

func callbackMac(key Secret, p Provider, account string, op OperationID) string {
	h := hmac.New(sha256.New, []byte(key.Reveal()))
	for _, part := range []string{"callback", string(p), account, string(op)} {
		_, _ = io.WriteString(h, part) // a hash never fails
		_, _ = h.Write([]byte{0})
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:20]))
}
