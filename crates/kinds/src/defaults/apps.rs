//! Defaults of the apps group.

use serde_json::{Value, json};

use super::core::{claim_template, one_replica, revision_history, rolling_update};
use super::pod::template_at;
use crate::value::{fill, fill_text, get, list_mut, object_mut};

pub(super) fn deployment(deployment: &mut Value) {
    template_at(deployment, "spec.template");
    one_replica(deployment);
    rolling_update(deployment, "spec.strategy", &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
    revision_history(deployment);
    if let Some(spec) = object_mut(deployment, "spec") {
        fill(spec, "progressDeadlineSeconds", 600);
    }
}

pub(super) fn replica_set(set: &mut Value) {
    template_at(set, "spec.template");
    one_replica(set);
}

pub(super) fn daemon_set(set: &mut Value) {
    // The generation of the template, which the server counts, was a field once.
    if let Some(annotations) = object_mut(set, "metadata.annotations") {
        fill(annotations, crate::strategy::TEMPLATE_GENERATION, "0");
    }
    template_at(set, "spec.template");
    rolling_update(set, "spec.updateStrategy", &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
    revision_history(set);
}

pub(super) fn stateful_set(set: &mut Value) {
    template_at(set, "spec.template");
    if let Some(spec) = object_mut(set, "spec") {
        fill_text(spec, "podManagementPolicy", "OrderedReady");
        // Kubernetes writes the name of the governing service even when there is none.
        fill(spec, "serviceName", "");
    }
    // A set that says RollingUpdate itself but gives no parameters gets none.
    let named = get(set, "spec.updateStrategy.type").as_str().is_some_and(|name| !name.is_empty());
    if !named || !get(set, "spec.updateStrategy.rollingUpdate").is_null() {
        rolling_update(set, "spec.updateStrategy", &[("partition", json!(0))]);
    }
    if let Some(policy) = object_mut(set, "spec.persistentVolumeClaimRetentionPolicy") {
        fill_text(policy, "whenDeleted", "Retain");
        fill_text(policy, "whenScaled", "Retain");
    }
    for claim in list_mut(set, "spec.volumeClaimTemplates") {
        claim_template(claim);
    }
    one_replica(set);
    revision_history(set);
    if let Some(status) = object_mut(set, "status") {
        fill(status, "replicas", 0);
        fill(status, "availableReplicas", 0);
    }
}
