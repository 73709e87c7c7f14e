//! `get`.

use machinery::status::Status;

use crate::context::Context;
use crate::request::ListOptions;
use crate::verbs::list::too_large;
use crate::write::Done;

impl Context {
    /// `GET` of one object.
    pub fn get(&self) -> Result<Done, Status> {
        if self.query.flag("export") {
            return Err(Status::bad_request("the export parameter, deprecated since v1.14, is no longer supported"));
        }
        let options = ListOptions {
            resource_version: self.query.get("resourceVersion").unwrap_or("").into(),
            ..Default::default()
        };
        if let Some(wanted) = options.revision()? {
            let current = self.server.store.revision();
            if wanted > current {
                return Err(too_large(wanted, current));
            }
        }
        let key = self.resource.key(&self.info.namespace, &self.info.name);
        match self.server.store.get(&self.resource.table, &key) {
            Some(entry) => Ok(Done::Entry(200, entry)),
            None => Err(self.not_found()),
        }
    }
}
