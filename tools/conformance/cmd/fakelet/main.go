// fakelet plays two nodes and their kubelets: it says of Pods that they run, and lets them go. No
// container is started. Only the webhooks and the API server that Kubernetes' tests bring as Pods are really served, by this
// program itself.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	conversion "k8s.io/kubernetes/test/images/agnhost/crd-conversion-webhook"
	"k8s.io/kubernetes/test/images/agnhost/webhook"
	sample "k8s.io/sample-apiserver/pkg/cmd/server"
)

func main() {
	var kubeconfig, stateDir, etcd string
	root := &cobra.Command{
		Use: "fakelet",
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			config.QPS, config.Burst = 500, 1000
			config.UserAgent = "fakelet"
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			pods := &pods{client: client.CoreV1(), servers: servers{dir: stateDir, etcd: etcd, config: config}}
			defer pods.servers.stopAll()
			if err := pods.servers.prepareNetwork(); err != nil {
				log.Printf("Pods cannot be reached, so webhooks cannot be called: %v", err)
			}
			if err := createNodes(ctx, client.CoreV1()); err != nil {
				return err
			}
			go heartbeat(ctx, client.CoreV1())
			pods.run(ctx, client)
			return nil
		},
	}
	root.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the cluster")
	root.Flags().StringVar(&stateDir, "state-dir", "", "where the files of served Pods go")
	root.Flags().StringVar(&etcd, "etcd", "", "the etcd under served API servers")
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	root.PersistentFlags().AddGoFlagSet(flags)
	wardle := sample.NewCommandStartWardleServer(context.Background(), sample.NewWardleServerOptions(os.Stdout, os.Stderr), false)
	wardle.Use, wardle.SilenceUsage = "sample-apiserver", true
	root.AddCommand(webhook.CmdWebhook, conversion.CmdCrdConversionWebhook, wardle)
	if root.Execute() != nil {
		os.Exit(1)
	}
}
