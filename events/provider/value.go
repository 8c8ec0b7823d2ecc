package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/pawl-dev/pawl/events"
)

// decodeJSON reads a body strictly and keeps every digit of its numbers.
func decodeJSON(data []byte) (any, error) {
	if err := events.CheckJSON(data); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}

// encodeJSON writes a value in one fixed form: sorted keys, no HTML escapes.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// adapter shows JSON to CEL without losing a digit.
type adapter struct{ types.Adapter }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(v any) ref.Val {
	switch x := v.(type) {
	case json.Number:
		return number(x.String())
	case map[string]any:
		return types.NewStringInterfaceMap(a, x)
	case []any:
		return types.NewDynamicList(a, x)
	}
	return a.Adapter.NativeToValue(v)
}

// number is a whole number where 64 bits hold it, a double where the double
// names the same decimal, and the digits as text otherwise: an id that lost its
// last digits names another job.
func number(lit string) ref.Val {
	if i, err := strconv.ParseInt(lit, 10, 64); err == nil {
		return types.Int(i)
	}
	if u, err := strconv.ParseUint(lit, 10, 64); err == nil {
		return types.Uint(u)
	}
	if f, err := strconv.ParseFloat(lit, 64); err == nil && digits(strconv.FormatFloat(f, 'e', -1, 64)) == digits(lit) {
		return types.Double(f)
	}
	return types.String(lit)
}

// digits are the significant digits of a literal.
func digits(lit string) string {
	mantissa, _, _ := strings.Cut(strings.ToLower(lit), "e")
	return strings.Trim(strings.Replace(strings.TrimPrefix(mantissa, "-"), ".", "", 1), "0")
}

// absent is the value of optional.none(): a template leaves its key out.
type absent struct{}

// native turns a value into what encoding/json writes. A part of a body is
// passed on as it was read.
func native(v ref.Val, depth int) (any, error) {
	if depth > events.JSONDepthMax {
		return nil, fmt.Errorf("nested deeper than %d", events.JSONDepthMax)
	}
	switch x := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool, types.String, types.Int, types.Uint, types.Double:
		return x.Value(), nil
	case types.Timestamp:
		return x.UTC().Format(time.RFC3339Nano), nil
	case *types.Optional:
		if !x.HasValue() {
			return absent{}, nil
		}
		return native(x.GetValue(), depth)
	case traits.Mapper:
		if m, ok := x.Value().(map[string]any); ok {
			return m, nil
		}
		return nativeMap(x, depth)
	case traits.Lister:
		if l, ok := x.Value().([]any); ok {
			return l, nil
		}
		return nativeList(x, depth)
	}
	return nil, fmt.Errorf("gives %s, which JSON does not have", v.Type().TypeName())
}

func nativeMap(m traits.Mapper, depth int) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		k, ok := key.(types.String)
		if !ok {
			return nil, errors.New("gives an object whose keys are not text")
		}
		v, err := native(m.Get(key), depth+1)
		if err != nil {
			return nil, err
		}
		if v != (absent{}) {
			out[string(k)] = v
		}
	}
	return out, nil
}

func nativeList(l traits.Lister, depth int) (any, error) {
	out := []any{}
	for it := l.Iterator(); it.HasNext() == types.True; {
		v, err := native(it.Next(), depth+1)
		if err != nil {
			return nil, err
		}
		if v != (absent{}) {
			out = append(out, v)
		}
	}
	return out, nil
}

// textOf gives text as it is, whole numbers in decimal, and "" for null and for
// what is absent.
func textOf(v ref.Val) (string, error) {
	switch x := v.(type) {
	case types.Null:
		return "", nil
	case types.String:
		return string(x), nil
	case types.Int:
		return strconv.FormatInt(int64(x), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(x), 10), nil
	case types.Bool:
		return strconv.FormatBool(bool(x)), nil
	case *types.Optional:
		if !x.HasValue() {
			return "", nil
		}
		return textOf(x.GetValue())
	}
	return "", fmt.Errorf("gives %s, want text or a whole number", v.Type().TypeName())
}

// instantOf reads RFC 3339 text or Unix seconds; zero if it is neither.
func instantOf(v ref.Val) time.Time {
	switch x := v.(type) {
	case types.Timestamp:
		return x.UTC()
	case types.Int:
		if x > 0 && x < 253402300800 { // the year 10000, beyond which no JSON time goes
			return time.Unix(int64(x), 0).UTC()
		}
	case types.String:
		if t, err := time.Parse(time.RFC3339Nano, string(x)); err == nil && t.Year() > 0 {
			return t.UTC()
		}
	case *types.Optional:
		if x.HasValue() {
			return instantOf(x.GetValue())
		}
	}
	return time.Time{}
}
