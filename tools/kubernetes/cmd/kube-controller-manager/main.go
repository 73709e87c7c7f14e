// Command kube-controller-manager is Kubernetes' controller manager, built from its module.
package main

import (
	"os"
	_ "time/tzdata" // CronJobs name time zones; the machine may have none installed

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	os.Exit(cli.Run(app.NewControllerManagerCommand()))
}
