package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what was measured: keys are <runtime>_<what>_<unit>, and
// ratio_<what> for containerd by crib.
type report map[string]float64

// quantiles are the percentiles that are reported.
var quantiles = []int{50, 90, 99}

// percentile returns the nearest rank of unsorted times, which it leaves alone.
func percentile(times []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// percentiles enters times of calls; of "wall" times, the rate of pods.
func (r report) percentiles(key string, times []time.Duration) {
	if prefix, ok := strings.CutSuffix(key, "wall"); ok {
		var all time.Duration
		for _, t := range times {
			all += t
		}
		r[prefix+"pods_per_second"] = float64(perTurn*len(times)) / all.Seconds()
		return
	}
	for _, p := range quantiles {
		r[fmt.Sprintf("%s_p%d_ms", key, p)] = millis(percentile(times, p))
	}
}

// ratios enters how much more containerd needs than crib, for everything that
// both have, and how much slower crib's last pods are than its first.
func (r report) ratios() {
	for _, key := range r.keys() {
		what, ok := strings.CutPrefix(key, "containerd_")
		ours := r["crib_"+what]
		if ok && ours > 0 && !strings.HasSuffix(key, "_pods") {
			r["ratio_"+trimUnit(what)] = r[key] / ours
		}
	}
	if first := r["crib_many_first_50_p50_ms"]; first > 0 {
		r["crib_many_last_by_first_50"] = r["crib_many_last_50_p50_ms"] / first
	}
}

func trimUnit(key string) string {
	return strings.TrimSuffix(strings.TrimSuffix(key, "_ms"), "_kib")
}

func (r report) keys() []string {
	keys := make([]string, 0, len(r))
	for key := range r {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// print writes the tables.
func (r report) print(out io.Writer, targets []*target) {
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(out, "load average %.4s; times in ms; ratio is containerd by crib\n\n", load)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() { _ = w.Flush() }()
	line := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")+"\t") }

	line("", "", "p50", "p90", "p99", "ratio of p50")
	for _, what := range calls() {
		for _, t := range targets {
			if _, measured := r[t.name+"_"+what+"_p50_ms"]; !measured {
				continue
			}
			cells := []string{what, t.name}
			for _, p := range quantiles {
				cells = append(cells, r.cell(fmt.Sprintf("%s_%s_p%d_ms", t.name, what, p)))
			}
			line(append(cells, r.ratioOnce(t, what+"_p50"))...)
		}
	}
	line()
	line("", "", "", "", "", "ratio")
	for _, what := range []string{
		"pods_per_second", "ten_pods_per_second", "many_pods", "many_pods_per_second",
		"many_first_50_p50_ms", "many_last_50_p50_ms", "idle_pss_kib", "pss_per_pod_kib", "kernel_per_pod_kib",
		"cpu_per_container_life_ms", "pss_per_pod_with_container_kib", "kernel_per_pod_with_container_kib",
	} {
		for _, t := range targets {
			if _, measured := r[t.name+"_"+what]; !measured {
				continue
			}
			line(what, t.name, r.cell(t.name+"_"+what), "", "", r.ratioOnce(t, trimUnit(what)))
		}
	}
	if cell := r.cell("crib_many_last_by_first_50"); cell != "" {
		line("last 50 by first 50", "crib", cell, "", "", "")
	}
}

// calls names what percentiles are of.
func calls() []string {
	var names []string
	for _, way := range ways {
		for _, v := range []verb{runPod, stopPod, removePod} {
			names = append(names, way.infix+string(v))
		}
	}
	for _, way := range ways {
		for _, v := range containerCalls {
			names = append(names, way.infix+string(v))
			if v == startContainer && way.infix == "" {
				names = append(names, string(startConfined))
			}
		}
	}
	return names
}

// cell formats a value, with more digits where it is small.
func (r report) cell(key string) string {
	value, ok := r[key]
	switch {
	case !ok:
		return ""
	case math.Abs(value) < 10:
		return fmt.Sprintf("%.2f", value)
	}
	return fmt.Sprintf("%.0f", value)
}

// ratioOnce formats a ratio, in crib's line only.
func (r report) ratioOnce(t *target, what string) string {
	if t.name != "crib" {
		return ""
	}
	return r.cell("ratio_" + what)
}

// save writes the report as one flat JSON object; an empty path is none.
func (r report) save(path string) error {
	if path == "" {
		return nil
	}
	rounded := make(map[string]float64, len(r))
	for key, value := range r {
		rounded[key] = math.Round(value*1000) / 1000
	}
	b, err := json.MarshalIndent(rounded, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
