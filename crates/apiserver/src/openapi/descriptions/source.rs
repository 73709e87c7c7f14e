//! Asks `k8s-openapi` for the JSON Schemas of all built-in kinds; types that they use come along.

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use schemars::SchemaGenerator;
use serde_json::{Map, Value};

macro_rules! all {
    ($generator:ident: $($module:path { $($kind:ident)* })*) => {
        $({
            use $module as module;
            $( $generator.subschema_for::<module::$kind>(); )*
        })*
    };
}

/// The schemas by the names of their types.
pub fn types() -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    all! { generator:
        api::admissionregistration::v1 {
            MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration
            ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
        }
        apiextensions { CustomResourceDefinition }
        apiregistration { APIService }
        api::apps::v1 { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
        api::authentication::v1 { SelfSubjectReview TokenRequest TokenReview }
        api::authorization::v1 {
            LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
        }
        api::autoscaling::v1 { HorizontalPodAutoscaler Scale }
        api::autoscaling::v2 { HorizontalPodAutoscaler }
        api::batch::v1 { CronJob Job }
        api::certificates::v1 { CertificateSigningRequest }
        api::coordination::v1 { Lease }
        api::core::v1 {
            Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume
            PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount
        }
        api::discovery::v1 { EndpointSlice }
        api::events::v1 { Event }
        api::flowcontrol::v1 { FlowSchema PriorityLevelConfiguration }
        meta { APIGroup APIGroupList APIResourceList APIVersions DeleteOptions ListMeta Status }
        api::networking::v1 { IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR }
        api::node::v1 { RuntimeClass }
        api::policy::v1 { Eviction PodDisruptionBudget }
        api::rbac::v1 { ClusterRole ClusterRoleBinding Role RoleBinding }
        api::resource::v1 { DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice }
        api::scheduling::v1 { PriorityClass }
        api::storage::v1 {
            CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass
        }
    }
    generator.take_definitions(false)
}
