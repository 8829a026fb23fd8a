package admin

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"runtime"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/crib-runtime/crib/cmd/crib/events"
)

// NewHandler returns the API of a source.
func NewHandler(source Source, metrics *Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, Version{Version: source.Version(), Go: runtime.Version()})
	})
	mux.HandleFunc("GET /v1/pods", func(w http.ResponseWriter, _ *http.Request) { answer(w, source.Pods()) })
	mux.HandleFunc("GET /v1/containers", func(w http.ResponseWriter, _ *http.Request) { answer(w, source.Containers()) })
	mux.HandleFunc("GET /v1/ops", func(w http.ResponseWriter, _ *http.Request) { answer(w, source.Ops()) })
	mux.HandleFunc("GET /v1/networks", func(w http.ResponseWriter, _ *http.Request) { answer(w, source.Networks()) })
	if source, ok := source.(ImageSource); ok {
		handleImages(mux, source.ImageStore())
	}
	if source, ok := source.(NetworkSource); ok {
		handleNetworks(mux, source)
	}
	if source, ok := source.(interface{ Events() *events.Hub }); ok {
		handleEvents(mux, source.Events())
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, // one odd name must not hide all the rest
	}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func answer(w http.ResponseWriter, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // a client that went away is no error of ours
}
