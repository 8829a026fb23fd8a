package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// completePod offers the names of pods for a command's only argument. Without a
// daemon there are none.
func (f *flags) completePod(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	const quiet = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, quiet
	}
	client, err := f.client()
	if err != nil {
		return nil, quiet
	}
	pods, err := client.Pods(cmd.Context())
	if err != nil {
		return nil, quiet
	}
	var names []string
	for _, pod := range pods {
		for _, name := range []string{pod.Namespace + "/" + pod.Name, pod.ID} {
			if strings.HasPrefix(name, begun) {
				names = append(names, name)
				break
			}
		}
	}
	return names, quiet
}
