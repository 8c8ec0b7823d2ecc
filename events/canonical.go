package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// JSONDepthMax is the deepest nesting of any JSON that Pawl reads.
const JSONDepthMax = 32

// FieldError refuses one field of somebody's input.
type FieldError struct {
	Field  string // dotted path, "" for the whole document
	Reason string // what is wrong and what to do
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Reason
	}
	return e.Field + ": " + e.Reason
}

// HexSHA256 is the digest of data in lower-case hex.
func HexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// JSONBlob wraps JSON text that fits into an event. The text is compacted first
// so that the hash is the one of the bytes as the event carries them. The error
// is a *FieldError without field if data is not JSON.
func JSONBlob(data []byte) (Blob, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return Blob{}, &FieldError{Reason: "not valid JSON: " + err.Error()}
	}
	return Blob{Inline: b.Bytes(), SHA256: HexSHA256(b.Bytes()), Size: int64(b.Len()), ContentType: "application/json"}, nil
}

// marshal is json.Marshal without HTML escaping, so that embedded JSON keeps
// its bytes and with them its hash.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// CheckJSON accepts exactly one JSON value of valid UTF-8, without duplicate
// keys, lone surrogates aside, nested at most JSONDepthMax deep. The standard decoder accepts duplicates
// and takes the last; a signature checker and a reader that disagree about
// which one counts is how a forged message passes. The error is a *FieldError.
func CheckJSON(data []byte) error {
	if !utf8.Valid(data) {
		return &FieldError{Reason: "not valid UTF-8"}
	}
	w := jsonWalk{dec: json.NewDecoder(bytes.NewReader(data))}
	w.dec.UseNumber()
	if err := w.value("", 0); err != nil {
		return err
	}
	if _, err := w.dec.Token(); !errors.Is(err, io.EOF) {
		return &FieldError{Reason: "more data after the JSON value"}
	}
	return nil
}

// CheckNumbers refuses numbers that canonical JSON (RFC 8785) would collapse
// with another number, because it passes them through a float64: two different
// requests would then share one fingerprint. The error is a *FieldError.
func CheckNumbers(field string, data []byte) error {
	w := jsonWalk{dec: json.NewDecoder(bytes.NewReader(data)), numbers: true}
	w.dec.UseNumber()
	return w.value(field, 0)
}

// Fingerprint is `sha256:<hex>` over the canonical JSON of data, which must
// have passed CheckJSON and CheckNumbers.
func Fingerprint(data []byte) (string, error) {
	canonical, err := jcs.Transform(data)
	if err != nil {
		return "", &FieldError{Reason: "no canonical form: " + err.Error()}
	}
	return "sha256:" + HexSHA256(canonical), nil
}

type jsonWalk struct {
	dec     *json.Decoder
	numbers bool
}

func (w *jsonWalk) value(path string, depth int) error {
	if depth > JSONDepthMax {
		return &FieldError{Field: path, Reason: fmt.Sprintf("nested deeper than %d", JSONDepthMax)}
	}
	tok, err := w.dec.Token()
	if err != nil {
		return &FieldError{Field: path, Reason: "not valid JSON: " + syntax(err)}
	}
	switch t := tok.(type) {
	case json.Number:
		if w.numbers {
			if reason := collapses(t.String()); reason != "" {
				return &FieldError{Field: path, Reason: reason}
			}
		}
	case json.Delim:
		if t == '{' {
			return w.object(path, depth)
		}
		return w.array(path, depth)
	}
	return nil
}

func (w *jsonWalk) object(path string, depth int) error {
	seen := map[string]bool{}
	for w.dec.More() {
		tok, err := w.dec.Token()
		if err != nil {
			return &FieldError{Field: path, Reason: "not valid JSON: " + syntax(err)}
		}
		key, _ := tok.(string)
		at := join(path, key)
		if seen[key] {
			return &FieldError{Field: at, Reason: "appears twice"}
		}
		seen[key] = true
		if err := w.value(at, depth+1); err != nil {
			return err
		}
	}
	return w.end(path)
}

func (w *jsonWalk) array(path string, depth int) error {
	for i := 0; w.dec.More(); i++ {
		if err := w.value(join(path, strconv.Itoa(i)), depth+1); err != nil {
			return err
		}
	}
	return w.end(path)
}

func (w *jsonWalk) end(path string) error {
	if _, err := w.dec.Token(); err != nil {
		return &FieldError{Field: path, Reason: "not valid JSON: " + syntax(err)}
	}
	return nil
}

func syntax(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return err.Error()
}

func join(path, key string) string {
	if len(key) > 64 {
		key = key[:64]
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// collapses says why a number has no exact canonical form, "" if it has one.
// A literal is exact when the shortest text of its float64, which is what RFC
// 8785 writes, names the same decimal value.
func collapses(lit string) string {
	const advice = "; send it as a string"
	if len(lit) > 64 {
		return "number of over 64 characters cannot be fingerprinted" + advice
	}
	f, err := strconv.ParseFloat(lit, 64)
	if err != nil || math.IsInf(f, 0) {
		return fmt.Sprintf("number %s is outside the range of a float64", lit) + advice
	}
	if f == 0 && strings.HasPrefix(lit, "-") {
		return "number -0 has the same canonical form as 0; send 0"
	}
	want, ok1 := decimal(lit)
	got, ok2 := decimal(strconv.FormatFloat(f, 'e', -1, 64))
	if !ok1 || !ok2 || want.Cmp(got) != 0 {
		return fmt.Sprintf("number %s loses digits as a float64 and cannot be fingerprinted", lit) + advice
	}
	const exact = 1 << 53
	if f == math.Trunc(f) && math.Abs(f) > exact && !strings.ContainsAny(lit, "eE.") {
		return fmt.Sprintf("integer %s is outside ±2^53 and cannot be fingerprinted", lit) + advice
	}
	return ""
}

// decimal reads a literal exactly. Exponents are bounded by the float64 range,
// which the caller has checked, and by the literal's length.
func decimal(lit string) (*big.Rat, bool) {
	if i := strings.IndexAny(lit, "eE"); i >= 0 {
		exp, err := strconv.Atoi(lit[i+1:])
		if err != nil || exp > 400 || exp < -400 {
			return nil, false
		}
	}
	return new(big.Rat).SetString(lit)
}
