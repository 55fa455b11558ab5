//! Routes: paths and methods to handlers.

use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method};

use super::failure::Failure;
use super::request::Request;
use super::response::Response;
use crate::usage;

/// Answers requests. Dropping its future ends the work for a client that disconnected.
pub type Handler = Arc<dyn Fn(Request) -> BoxFuture<'static, Result<Response, Failure>> + Send + Sync>;

/// Writes a failure in the form that a family of clients reads.
pub type FailureForm = fn(Failure) -> Failure;

/// The form of failures for a request by its path and headers; `None` for the wire format's.
type ChooseForm = fn(&str, &HeaderMap) -> Option<FailureForm>;

/// The table of routes.
#[derive(Default)]
pub struct Router {
    routes: Vec<Route>,
    index: matchit::Router<usize>,
    /// The handler for all other paths, and the table that replaces this one.
    meanwhile: Option<(Handler, Later)>,
    log: usage::Log,
    form: Option<ChooseForm>,
}

/// A routing table that is still to come, for a server whose socket opens before it is ready.
#[derive(Clone, Default)]
pub struct Later(Arc<OnceLock<Router>>);

impl Later {
    /// `router` answers from here on. A second call changes nothing.
    pub fn set(&self, router: Router) {
        let _ = self.0.set(router);
    }
}

struct Route {
    pattern: String,
    methods: Vec<(Method, Handler)>,
    /// Also answers while the server is leaving.
    is_to_the_end: bool,
}

/// The route of a request.
pub(super) struct Found {
    pub handler: Handler,
    /// The route's pattern: unlike the path it takes few values, so it can label a metric.
    pub pattern: String,
    /// The values of the pattern's `{names}`.
    pub captures: Vec<(String, String)>,
    /// Also answers while the server is leaving.
    pub is_to_the_end: bool,
}

impl Router {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route. `pattern` is matchit's: `/v1/jobs/{id}`. A route for GET answers HEAD as well.
    ///
    /// # Panics
    /// If the pattern conflicts with another one: routes are constants of the program.
    #[must_use]
    pub fn route<F, R>(mut self, method: Method, pattern: &str, handler: F) -> Self
    where
        F: Fn(Request) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Response, Failure>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
        match self.routes.iter_mut().find(|route| route.pattern == pattern) {
            Some(route) => route.methods.push((method, handler)),
            None => {
                self.index.insert(pattern, self.routes.len()).expect("routes do not conflict; this is a bug");
                let (pattern, methods) = (pattern.to_owned(), vec![(method, handler)]);
                self.routes.push(Route { pattern, methods, is_to_the_end: false });
            }
        }
        self
    }

    /// As [`Self::route`], for routes that report the server's state: they also answer while the server is
    /// leaving, when others refuse new requests.
    ///
    /// # Panics
    /// As [`Self::route`].
    #[must_use]
    pub fn route_to_the_end<F, R>(self, method: Method, pattern: &str, handler: F) -> Self
    where
        F: Fn(Request) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Response, Failure>> + Send + 'static,
    {
        let mut router = self.route(method, pattern, handler);
        for route in router.routes.iter_mut().filter(|route| route.pattern == pattern) {
            route.is_to_the_end = true;
        }
        router
    }

    /// Uses this table until `later` is set, with `handler` for all other paths.
    #[must_use]
    pub fn until<F, R>(mut self, later: Later, handler: F) -> Self
    where
        F: Fn(Request) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Response, Failure>> + Send + 'static,
    {
        self.meanwhile = Some((Arc::new(move |request| Box::pin(handler(request))), later));
        self
    }

    /// Requests of these routes are logged there.
    #[must_use]
    pub fn logged_in(mut self, log: usage::Log) -> Self {
        self.log = log;
        self
    }

    /// The log of the table in use.
    pub(super) fn log(&self) -> &usage::Log {
        &self.current().log
    }

    /// Chooses the form of failures by path and headers, also of those that come before any handler: 404, 405 and the
    /// like.
    #[must_use]
    pub fn with_failures(mut self, form: ChooseForm) -> Self {
        self.form = Some(form);
        self
    }

    /// The form of failures of a request; `None` for the wire format's.
    pub(super) fn failure_form(&self, path: &str, headers: &HeaderMap) -> Option<FailureForm> {
        let choose = self.current().form.or(self.form)?;
        choose(path, headers)
    }

    /// The table in use.
    fn current(&self) -> &Self {
        match &self.meanwhile {
            Some((_, later)) => later.0.get().map_or(self, Self::current),
            None => self,
        }
    }

    /// All routes: method and pattern.
    pub fn routes(&self) -> impl Iterator<Item = (&Method, &str)> {
        self.routes
            .iter()
            .flat_map(|route| route.methods.iter().map(|(method, _)| (method, route.pattern.as_str())))
    }

    /// # Errors
    /// 404, or 405 with the methods that the path has.
    pub(super) fn find(&self, method: &Method, path: &str) -> Result<Found, Failure> {
        self.current().found(method, path)
    }

    fn found(&self, method: &Method, path: &str) -> Result<Found, Failure> {
        let Ok(matched) = self.index.at(path) else {
            let (handler, _) = self.meanwhile.as_ref().ok_or_else(Failure::not_found)?;
            let (handler, pattern) = (handler.clone(), "none".to_owned());
            return Ok(Found { handler, pattern, captures: Vec::new(), is_to_the_end: false });
        };
        let route = self.routes.get(*matched.value).ok_or_else(Failure::not_found)?;
        let wanted = if *method == Method::HEAD { &Method::GET } else { method };
        match route.methods.iter().find(|(method, _)| method == wanted) {
            Some((_, handler)) => Ok(Found {
                handler: handler.clone(),
                pattern: route.pattern.clone(),
                captures: matched
                    .params
                    .iter()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
                is_to_the_end: route.is_to_the_end,
            }),
            None => Err(Failure::method_not_allowed(route.allow())),
        }
    }

    /// The methods of `path`, for a preflight.
    pub(super) fn methods(&self, path: &str) -> Option<HeaderValue> {
        let current = self.current();
        let matched = current.index.at(path).ok()?;
        current.routes.get(*matched.value).map(Route::allow)
    }
}

impl Route {
    fn allow(&self) -> HeaderValue {
        let mut methods: Vec<&str> = self.methods.iter().map(|(method, _)| method.as_str()).collect();
        if methods.contains(&"GET") {
            methods.push("HEAD");
        }
        // Methods are tokens, which any header value may hold.
        HeaderValue::from_str(&methods.join(", ")).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::super::response::json;
    use super::*;

    fn router() -> Router {
        let answer = async |_: Request| Ok(json(StatusCode::OK, &()));
        Router::new().route(Method::GET, "/things", answer).route(Method::POST, "/things", answer).route(
            Method::POST,
            "/things/{id}",
            answer,
        )
    }

    #[test]
    fn a_path_and_method_find_their_handler() {
        let router = router();
        assert_eq!(router.find(&Method::POST, "/things").unwrap().pattern, "/things");
        assert_eq!(router.find(&Method::HEAD, "/things").unwrap().pattern, "/things");
        let found = router.find(&Method::POST, "/things/7").unwrap();
        assert_eq!(found.pattern, "/things/{id}");
        assert_eq!(found.captures, [("id".to_owned(), "7".to_owned())]);
    }

    #[test]
    fn a_table_that_comes_later_takes_the_place_of_the_first() {
        let (later, answer) = (Later::default(), async |_: Request| Ok(json(StatusCode::OK, &())));
        let busy = async |_: Request| Err(Failure::busy(std::time::Duration::from_secs(1)));
        let table = Router::new().route(Method::GET, "/livez", answer).until(later.clone(), busy);
        assert_eq!(table.find(&Method::GET, "/livez").unwrap().pattern, "/livez");
        assert_eq!(table.find(&Method::POST, "/things/7").unwrap().pattern, "none");
        assert!(table.methods("/things").is_none());
        later.set(router());
        assert_eq!(table.find(&Method::POST, "/things/7").unwrap().pattern, "/things/{id}");
        assert_eq!(table.methods("/things").unwrap(), "GET, POST, HEAD");
        assert!(table.find(&Method::GET, "/livez").is_err());
    }

    #[test]
    fn what_is_asked_of_a_server_that_leaves_is_marked() {
        let answer = async |_: Request| Ok(json(StatusCode::OK, &()));
        let table = router().route_to_the_end(Method::GET, "/readyz", answer);
        for (path, expected) in [("/readyz", true), ("/things", false)] {
            assert_eq!(table.find(&Method::GET, path).unwrap().is_to_the_end, expected, "{path}");
        }
    }

    #[test]
    fn others_are_told_what_there_is() {
        let router = router();
        for path in ["/", "", "/thing", "/things/", "/things/7/8", "*", "//things"] {
            let failure = router.find(&Method::GET, path).err().unwrap();
            assert_eq!(failure.status(), StatusCode::NOT_FOUND, "{path}");
        }
        let failure = router.find(&Method::DELETE, "/things").err().unwrap();
        assert_eq!(failure.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(router.methods("/things").unwrap(), "GET, POST, HEAD");
        assert_eq!(router.methods("/things/7").unwrap(), "POST");
    }
}
