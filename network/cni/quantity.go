package cni

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// quantity returns the whole number, rounded up, that a Kubernetes quantity such
// as "10M", "1.5Gi" or "2e6" stands for. Quantities of bandwidth are all that
// this daemon reads from annotations; the API machinery would be much for that.
func quantity(text string) (uint64, error) {
	end := strings.LastIndexAny(text, "0123456789.") + 1
	number, suffix := text[:end], text[end:]
	if mantissa, exponent, ok := cutExponent(number); ok {
		number, suffix = mantissa, "e"+exponent+suffix
	}
	value, plain := new(big.Rat).SetString(number)
	scale, known := scaleOf(suffix)
	if !plain || !known || strings.ContainsAny(number, "/_xXpPbBoO") {
		return 0, fmt.Errorf("%q is no quantity; want a number such as 10M or 1Gi: %w", text, errdefs.ErrInvalidArgument)
	}
	value.Mul(value, scale)
	up := new(big.Int).Add(value.Num(), new(big.Int).Sub(value.Denom(), big.NewInt(1)))
	whole := up.Div(up, value.Denom())
	if !whole.IsUint64() {
		return 0, fmt.Errorf("%q is out of range: %w", text, errdefs.ErrInvalidArgument)
	}
	return whole.Uint64(), nil
}

// cutExponent splits "2e6" into 2 and 6.
func cutExponent(number string) (mantissa, exponent string, found bool) {
	at := strings.IndexAny(number, "eE")
	if at < 0 {
		return number, "", false
	}
	return number[:at], number[at+1:], true
}

// scaleOf returns the factor of a suffix, decimal (M), binary (Mi) or "e<digits>".
func scaleOf(suffix string) (*big.Rat, bool) {
	if digits, ok := strings.CutPrefix(suffix, "e"); ok && digits != "" {
		n, err := strconv.Atoi(digits)
		if err != nil || n < -18 || n > 18 {
			return power(10, 0), false
		}
		return power(10, n), true
	}
	if prefix, ok := strings.CutSuffix(suffix, "i"); ok {
		at := strings.Index("KMGTPE", prefix)
		return power(1024, at+1), len(prefix) == 1 && at >= 0
	}
	if suffix == "" {
		return power(10, 0), true
	}
	at := strings.Index("num kMGTPE", suffix)
	return power(1000, at-3), len(suffix) == 1 && suffix != " " && at >= 0
}

func power(base int64, n int) *big.Rat {
	p := new(big.Int).Exp(big.NewInt(base), big.NewInt(int64(max(n, -n))), nil)
	if n < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), p)
	}
	return new(big.Rat).SetInt(p)
}
