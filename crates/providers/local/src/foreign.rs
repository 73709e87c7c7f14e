//! Kinds whose things are in a home that is another data directory's.

use crate::kind::{BoxFuture, Finding, Kind, Object, Report, Trouble};
use crate::lack::Lack;
use std::sync::Arc;

/// A kind of which nothing is made, mended or removed here, and every object says why.
pub struct Foreign {
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) lack: Lack,
}

impl Kind for Foreign {
    fn api_version(&self) -> &'static str {
        self.kind.api_version()
    }

    fn kind(&self) -> &'static str {
        self.kind.kind()
    }

    fn plural(&self) -> &'static str {
        self.kind.plural()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Lack>> {
        Box::pin(async { Err(self.lack.clone()) })
    }

    fn reconcile<'a>(&'a self, _: &'a Object) -> BoxFuture<'a, Result<Report, Trouble>> {
        Box::pin(async { Ok(Report { not_ready: Some(self.lack.clone().into()), ..Report::default() }) })
    }

    fn remove<'a>(&'a self, _: &'a Object) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(async { Err(self.lack.clone().into()) })
    }

    /// Its provider says so once for all kinds.
    fn audit<'a>(&'a self, _: &'a [Object]) -> BoxFuture<'a, Result<Vec<Finding>, Trouble>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
