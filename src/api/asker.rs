//! Who asks: identifies clients that are refused and come back.

use hyper::header::CONTENT_LENGTH;

use crate::http::{Caller, Request};
use crate::share::Asker;

/// The sender of `request`. Bodies are distinguished by length: they are not read yet.
pub(super) fn asker(caller: &Caller, request: &Request) -> Asker {
    let length = request.headers.get(CONTENT_LENGTH);
    let same_again = (caller.tenant, request.peer.ip(), request.uri.path(), request.uri.query(), length);
    Asker::new(same_again, request.peer)
}
