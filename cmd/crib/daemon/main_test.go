package daemon

import (
	"os"
	"testing"

	"github.com/crib-runtime/crib/network/netns/nstest"
)

func TestMain(m *testing.M) { os.Exit(nstest.Main(m)) }
