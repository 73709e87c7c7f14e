package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const nodeCount = 2

func nodeName(i int) string {
	return fmt.Sprintf("fake-%d", i%nodeCount+1)
}

func nodeAddress(i int) string {
	return fmt.Sprintf("10.0.0.%d", i%nodeCount+1)
}

func createNodes(ctx context.Context, client corev1.CoreV1Interface) error {
	for i := range nodeCount {
		name := nodeName(i)
		labels := map[string]string{v1.LabelHostname: name, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64"}
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		_, err := client.Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !errors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// heartbeat says every few seconds that all nodes are well.
func heartbeat(ctx context.Context, client corev1.CoreV1Interface) {
	for ctx.Err() == nil {
		for i := range nodeCount {
			patch, err := json.Marshal(map[string]any{"status": nodeStatus(i)})
			if err == nil {
				_, err = client.Nodes().Patch(ctx, nodeName(i), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			}
			if err != nil {
				log.Print(err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
}

func nodeStatus(i int) v1.NodeStatus {
	room := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("256Gi"),
		v1.ResourcePods: resource.MustParse("1000"), v1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	now := metav1.Now()
	return v1.NodeStatus{
		Capacity: room, Allocatable: room,
		Addresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: nodeAddress(i)}, {Type: v1.NodeHostName, Address: nodeName(i)},
		},
		NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.36.4", OperatingSystem: "linux", Architecture: "amd64"},
		Conditions: []v1.NodeCondition{{
			Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "Fake", LastHeartbeatTime: now, LastTransitionTime: now,
		}},
	}
}
