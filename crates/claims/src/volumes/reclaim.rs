//! What becomes of a volume that is released or deleted: kept, scrubbed for the next, or removed with what is behind it.

use serde_json::{Value, json};

use crate::lifecycle::parts::{asked_for, deleting, finalizer, phase, takes_no_scrub};
use crate::lifecycle::{CLAIM_UID, Plan, RESOURCE_FINALIZER, RETAINED, SCRUB_ASKED, condition_of, is_asked_of_another};
use crate::volumes::life::annotated;
use crate::volumes::volume::{VolumeScene, is_ours, own, say, tell};
use crate::volumes::{BOUND_BY_CONTROLLER, PROVISIONED_BY, RECLAIM, SCRUB};

/// The reason on a volume that is being scrubbed.
pub const SCRUBBING: &str = "Scrubbing";

fn is_recycled(volume: &Value) -> bool {
    volume["metadata"]["annotations"][RECLAIM].as_str() == Some("Recycle")
}

/// A volume on its way out that nobody has: by its policy with or without its implementation.
pub(super) fn remove(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let volume = scene.volume;
    let Some(rest) = finalizer(volume, RESOURCE_FINALIZER, false) else { return };
    let mut gone = true;
    if let Some(implementation) = scene.implementation {
        // what is to be scrubbed when its claim is gone is nobody's to keep, unless an administrator declared it
        let made = implementation["metadata"]["labels"][CLAIM_UID].is_string();
        let policy = volume["spec"]["persistentVolumeReclaimPolicy"].as_str();
        let keep = policy != Some("Delete") && !(is_recycled(volume) && made);
        if keep && implementation["metadata"]["annotations"][RETAINED].as_str() != Some("true") {
            let patch = json!({"metadata": {"annotations": {RETAINED: "true"}}});
            plan.patch(implementation, patch, "keep the implementation");
            plan.of_implementation();
        } else if !keep {
            gone = false;
            end(implementation, "its reclaim policy keeps nothing", plan);
        }
    }
    if gone {
        plan.patch(volume, json!({"metadata": {"finalizers": rest}}), "let the volume go");
    }
}

fn end(implementation: &Value, why: &'static str, plan: &mut Plan) {
    if !deleting(implementation) {
        plan.delete(implementation, why);
        plan.of_implementation();
    }
}

/// What becomes of a volume whose claim is gone.
pub(super) fn reclaim(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let volume = scene.volume;
    match volume["spec"]["persistentVolumeReclaimPolicy"].as_str() {
        Some("Delete") if is_ours(volume) => match scene.implementation {
            Some(implementation) => end(implementation, "its reclaim policy is Delete", plan),
            None => plan.delete(volume, "its reclaim policy is Delete"),
        },
        // someone else's provisioner deletes it
        Some("Delete") if annotated(volume, PROVISIONED_BY) => {}
        Some("Delete") => {
            let message = "nothing here can delete what is behind it: delete it by hand, then the volume";
            say(scene, "Failed", json!("VolumeFailedDelete"), json!(message), plan);
        }
        _ if is_recycled(volume) => scrub(scene, plan),
        _ => {}
    }
}

/// Whether a scrub was asked for that has not ended well; one that failed is tried again.
pub(super) fn is_being_scrubbed(implementation: &Value) -> bool {
    let asked = implementation["spec"]["scrub"].as_i64().unwrap_or(0);
    // one that is asked for under an older number was done with the later one: its provider does it no more
    let done = implementation["status"]["scrubbed"].as_i64().is_some_and(|done| done >= asked);
    let well = condition_of(implementation, "Scrubbed").is_some_and(|(well, _, _)| well);
    asked > 0 && !(done && well) && !is_asked_of_another(implementation)
}

/// The number under which a scrub was asked of an implementation, whatever became of its `spec.scrub` since.
fn number_asked(implementation: &Value) -> Option<i64> {
    let asked = implementation["metadata"]["annotations"][SCRUB_ASKED].as_str()?;
    asked.split(' ').next()?.parse().ok()
}

/// Whether the scrub that is intended for a volume was asked of this very implementation, and may have been begun: a kind without scrubs
/// drops the question.
pub(super) fn was_asked(volume: &Value, implementation: &Value) -> bool {
    if takes_no_scrub(implementation) && implementation["status"]["scrubbed"].is_null() {
        return false;
    }
    let intended = volume["metadata"]["annotations"][SCRUB].as_str().and_then(|n| n.parse::<i64>().ok());
    let asked = number_asked(implementation).filter(|_| !is_asked_of_another(implementation));
    intended.is_some_and(|intended| asked.is_some_and(|asked| asked >= intended))
}

/// What to do about a scrub that failed: whoever answered so may never try again by itself.
pub(super) fn ask_again(implementation: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let seen = [&implementation["spec"]["scrub"], &implementation["status"]["scrubbed"]];
    let next = seen.into_iter().filter_map(Value::as_i64).max().unwrap_or(0).saturating_add(1);
    let (kind, name) = (text(&implementation["kind"]), text(&implementation["metadata"]["name"]));
    format!("set spec.scrub of {kind} {name} to {next} to have it scrubbed once more, or delete both")
}

/// As for other resources: asked for under a number, Available only when that number is done.
fn scrub(scene: &VolumeScene<'_>, plan: &mut Plan) {
    let volume = scene.volume;
    let Some(implementation) = scene.implementation else {
        let message =
            "nothing can scrub it: it has no implementation; scrub it by hand, then set spec.claimRef to null";
        return tell(scene, phase(volume), "CannotScrub", message.to_owned(), plan);
    };
    // by now it is this volume's, whosever copy it is: what it says is followed
    own(volume, implementation, plan);
    let asked = number_asked(implementation);
    let intended = volume["metadata"]["annotations"][SCRUB].as_str().and_then(|n| n.parse::<i64>().ok());
    if takes_no_scrub(implementation) && intended.is_some() && intended == asked {
        let message = format!(
            "nothing can scrub it: a {} has no spec.scrub; scrub it by hand, then set spec.claimRef to null, or delete it",
            implementation["kind"].as_str().unwrap_or_default()
        );
        return tell(scene, phase(volume), "CannotScrub", message, plan);
    }
    let seen = [&implementation["spec"]["scrub"], &implementation["status"]["scrubbed"]];
    let latest = seen.into_iter().filter_map(Value::as_i64).chain(asked).max().unwrap_or(0);
    // what was restored from a copy has its data again, whatever the copy says of a scrub
    let copied = is_asked_of_another(implementation);
    let answered = implementation["status"]["scrubbed"].as_i64().filter(|_| copied);
    let Some(number) = intended.filter(|number| *number >= latest && answered != Some(*number)) else {
        let next = latest.saturating_add(1).to_string();
        plan.patch(volume, json!({"metadata": {"annotations": {SCRUB: next}}}), "intend a scrub");
        return say(scene, "Released", json!(SCRUBBING), json!("being scrubbed before it is used again"), plan);
    };
    if copied || implementation["spec"]["scrub"].as_i64() != Some(number) {
        let patch = json!({"metadata": asked_for(implementation, number), "spec": {"scrub": number}});
        plan.patch(implementation, patch, "ask for a scrub");
        plan.of_implementation();
        return;
    }
    if implementation["status"]["scrubbed"].as_i64() != Some(number) {
        return;
    }
    match condition_of(implementation, "Scrubbed") {
        Some((true, _, _)) => {
            let patch = json!({
                "spec": {"claimRef": null},
                "metadata": {"annotations": {BOUND_BY_CONTROLLER: null, SCRUB: null}},
            });
            plan.patch(volume, patch, "scrubbed: free again");
            say(scene, "Available", Value::Null, Value::Null, plan);
        }
        Some((false, _, why)) => {
            let again = ask_again(implementation);
            let message = format!("it could not be scrubbed and is not used again: {why}; {again}");
            tell(scene, "Failed", "ScrubFailed", message, plan);
        }
        None => {}
    }
}
