package tools

// critest is built of the tests of cmd/critest. What only tests of other modules
// import is kept in go.mod by importing it here.
import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/framework"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
