//! `create` and `update`.

use bytes::Bytes;
use machinery::status::Status;

use crate::context::Context;
use crate::plan::{Plan, View};
use crate::write::{Change, Done};

impl Context {
    /// `POST`: a new object.
    pub async fn create(&self, body: Bytes) -> Result<Done, Status> {
        let body = &body;
        self.run(move |view| async move { self.plan_of_create(&view, body).await }).await
    }

    /// Plans a `POST`.
    pub async fn plan_of_create(&self, view: &View<'_>, body: &Bytes) -> Result<Plan, Status> {
        let options = self.write_options("CreateOptions")?;
        let sent = self.read(body, &options)?;
        self.plan_create(view, sent, false, &options).await
    }

    /// `PUT`: a whole new version, or a new object for the kinds that allow it.
    pub async fn update(&self, body: Bytes) -> Result<Done, Status> {
        let body = &body;
        self.run(move |view| async move { self.plan_of_update(&view, body).await }).await
    }

    /// The name within the object must be the one in the path.
    pub(super) fn check_name(&self, object: &serde_json::Value) -> Result<(), Status> {
        let (given, name) = (object["metadata"]["name"].as_str().unwrap_or_default(), &self.info.name);
        if given.is_empty() && self.info.subresource.is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        if !given.is_empty() && given != name {
            return Err(Status::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        Ok(())
    }

    /// Plans a `PUT`.
    pub async fn plan_of_update(&self, view: &View<'_>, body: &Bytes) -> Result<Plan, Status> {
        let options = self.write_options("UpdateOptions")?;
        let sent = self.read(body, &options)?;
        self.check_name(&sent.object)?;
        let creates = self.info.subresource.is_empty()
            && !self.resource.is_custom()
            && kinds::strategy::allows_create_on_update(&self.resource.group, &self.resource.kind);
        let key = self.resource.key(&self.info.namespace, &self.info.name);
        if creates && view.stored(&self.resource, &key)?.is_none() {
            return self.plan_create(view, sent, false, &options).await;
        }
        let change = |_: &serde_json::Value| {
            let (object, said) = (sent.object.clone(), sent.said.clone());
            Ok(Change { object, conditional: true, tracked: false, unsettled: Vec::new(), said })
        };
        self.plan_update(view, &options, &change).await
    }
}
