package daemon

import (
	"os"
	"strings"
	"testing"

	"github.com/crib-runtime/crib/network/netns/nstest"
)

func TestLoadedModulesAreNotLoadedAgain(t *testing.T) {
	loaded, err := os.ReadDir("/sys/module")
	if err != nil || len(loaded) == 0 {
		t.Skip("the kernel shows no modules: ", err)
	}
	t.Setenv("PATH", "") // no modprobe
	if err := loadModules(t.Context(), []string{loaded[0].Name()}); err != nil {
		t.Error(err)
	}
}

func TestAModuleThatIsNowhereIsNamedWithTheRemedy(t *testing.T) {
	nstest.Lab(t) // needs root, as modprobe does
	err := loadModules(t.Context(), []string{"crib_no_such_module"})
	if err == nil || !strings.Contains(err.Error(), "crib_no_such_module") || !strings.Contains(err.Error(), "install the package") {
		t.Errorf("got %v", err)
	}
}

func TestAKernelThatHasAllBuiltInDoesNotComplain(t *testing.T) {
	nstest.Lab(t)
	t.Setenv("PATH", "")
	if n := openTest(t, testConfig(t)); strings.Contains(n.status().Message, "module") {
		t.Errorf("status: %+v", n.status())
	}
}
