//! The console: pages in the browser to try the server, hear it and run it.

mod assets;
mod policy;

use hyper::Method;

use crate::http::Router;

/// Adds the pages, which hold nothing secret: they work before anyone has signed in.
pub fn pages(router: Router) -> Router {
    router.route_to_the_end(Method::GET, "/", assets::index).route_to_the_end(
        Method::GET,
        "/console/{hash}/{*path}",
        assets::file,
    )
}
