//! Small models in ONNX form: a runtime that is loaded if it is installed, and a thread for each model.
//!
//! The models serve a voice agent (the end of a caller's turn, the agent's voice) beside recognition, which they must not
//! slow down: their threads are few, do not spin, and yield the processor to other work.

mod graph;

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Sender, bounded};
use ort::environment::Environment;
use ort::session::SessionInputValue;
use ort::value::Tensor;
use tokio::sync::oneshot;

pub use graph::{Element, Graph, GraphError, WEIGHT, given};

/// The runtime's library, relative to the folder of models.
const LIBRARY: &str = "onnxruntime/libonnxruntime.so";
/// Niceness of the models' threads: beside a busy thread of the engine, one of these gets a quarter of the processor
/// (weights 335 and 1024, `sched(7)`).
const NICENESS: i32 = 5;
/// Questions that may wait for one model.
const QUEUE_MAX: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the ONNX runtime is not installed ({})", .0.display())]
    NoRuntime(PathBuf),
    #[error("the ONNX runtime cannot be used: {0}")]
    Runtime(String),
    #[error("the model cannot be read ({})", path.display())]
    Model {
        path: PathBuf,
        #[source]
        source: ort::Error,
    },
    #[error("the model's parts cannot be used")]
    Parts(#[source] ort::Error),
    #[error("the model does not run")]
    Run(#[from] ort::Error),
    #[error("no thread for the model")]
    Thread(#[source] std::io::Error),
    #[error("the model's thread died")]
    Died,
}

/// A loaded model.
pub struct Session(ort::session::Session);

/// An input of a model: a shape, and the number of values that it implies.
pub enum Input {
    Floats(Vec<i64>, Vec<f32>),
    Integers(Vec<i64>, Vec<i64>),
}

/// Values that a model has computed.
pub enum Output {
    Floats(Vec<f32>),
    Integers(Vec<i64>),
}

impl Session {
    /// Loads `file` of the folder `models`, which holds the runtime too. It computes on `threads` threads.
    ///
    /// # Errors
    /// [`Error`].
    pub fn load(models: &Path, file: &str, threads: usize) -> Result<Self, Error> {
        let path = models.join(file);
        let load = |environment| builder(&environment, threads)?.commit_from_file(&path);
        load(environment(&models.join(LIBRARY))?)
            .map(Self)
            .map_err(|source| Error::Model { path: path.clone(), source })
    }

    /// Loads a model from its bytes, such as a part of one; `models` has the runtime.
    ///
    /// # Errors
    /// [`Error`].
    pub fn of(models: &Path, model: &[u8], threads: usize) -> Result<Self, Error> {
        let load = |environment| builder(&environment, threads)?.commit_from_memory(model);
        load(environment(&models.join(LIBRARY))?).map(Self).map_err(Error::Parts)
    }

    /// The values of the model's first output.
    ///
    /// # Errors
    /// [`Error::Run`], also where the inputs are not the model's.
    pub fn run<const N: usize>(&mut self, inputs: [(&'static str, Input); N]) -> Result<Vec<f32>, Error> {
        let inputs = inputs.map(|(name, input)| (Cow::Borrowed(name), input));
        match self.run_all(inputs.into())?.into_iter().next() {
            Some(Output::Floats(values)) => Ok(values),
            _ => Err(Error::Died),
        }
    }

    /// The values of all outputs of the model, in its order.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_all(&mut self, inputs: Vec<(Cow<'static, str>, Input)>) -> Result<Vec<Output>, Error> {
        let inputs = inputs.into_iter().map(|(name, input)| {
            let value: SessionInputValue<'_> = match input {
                Input::Floats(shape, values) => Tensor::from_array((shape, values))?.into(),
                Input::Integers(shape, values) => Tensor::from_array((shape, values))?.into(),
            };
            Ok((name, value))
        });
        let outputs = self.0.run(inputs.collect::<Result<Vec<_>, ort::Error>>()?)?;
        let values = outputs.values().map(|output| match output.try_extract_tensor::<f32>() {
            Ok((_, values)) => Ok(Output::Floats(values.to_vec())),
            Err(_) => Ok(Output::Integers(output.try_extract_tensor::<i64>()?.1.to_vec())),
        });
        values.collect()
    }
}

fn builder(
    environment: &Environment,
    threads: usize,
) -> Result<ort::session::builder::SessionBuilder, ort::Error> {
    Ok(ort::session::Session::builder(environment)?
        .with_intra_threads(threads)?
        .with_intra_op_spinning(false)?)
}

/// Opens the runtime in the folder `models`, for a model that is loaded later.
///
/// # Errors
/// [`Error::NoRuntime`], [`Error::Runtime`].
pub fn open_runtime(models: &Path) -> Result<(), Error> {
    environment(&models.join(LIBRARY)).map(drop)
}

/// One runtime for the whole process: the library that was opened first stays.
fn environment(library: &Path) -> Result<Environment, Error> {
    static OPENED: Mutex<Option<Environment>> = Mutex::new(None);
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = &*opened {
        return Ok(environment.clone());
    }
    Ok(opened.insert(open(library)?).clone())
}

fn open(library: &Path) -> Result<Environment, Error> {
    if !library.exists() {
        return Err(Error::NoRuntime(library.to_owned()));
    }
    let environment = ort::init_from(library).map_err(|error| Error::Runtime(error.to_string()))?;
    Ok(environment.with_telemetry(false).build()?)
}

/// A handle on a thread that answers one question after another. The thread ends with its last handle.
pub struct Worker<I, O>(Sender<Job<I, O>>);

struct Job<I, O> {
    input: I,
    reply: oneshot::Sender<O>,
}

impl<I: Send + 'static, O: Send + 'static> Worker<I, O> {
    /// Starts a thread that answers with the function that `load` returns, and waits until it has loaded.
    ///
    /// # Errors
    /// The error of `load`, [`Error::Thread`], [`Error::Died`].
    pub fn start<E, F, W>(name: &'static str, load: F) -> Result<Self, E>
    where
        E: From<Error> + Send + 'static,
        F: FnOnce() -> Result<W, E> + Send + 'static,
        W: FnMut(I) -> O,
    {
        let (jobs, queue) = bounded::<Job<I, O>>(QUEUE_MAX);
        let (report, reported) = bounded(1);
        let serve = move || {
            step_back();
            let mut answer = match load() {
                Ok(answer) => answer,
                Err(error) => return drop(report.send(Err(error))),
            };
            drop(report.send(Ok(())));
            for Job { input, reply } in queue {
                // The caller may have gone by now.
                if reply.is_closed() {
                    continue;
                }
                match catch_unwind(AssertUnwindSafe(|| answer(input))) {
                    Ok(output) => drop(reply.send(output)),
                    Err(_) => tracing::error!(model = name, "the model's thread panicked, and goes on"),
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.into());
        thread.spawn(serve).map_err(Error::Thread)?;
        reported.recv().map_err(|_| Error::Died)??;
        Ok(Self(jobs))
    }

    /// The answer; `None` if too many questions wait, or the answer panicked. Dropping the future before its turn withdraws
    /// the question.
    pub async fn ask(&self, input: I) -> Option<O> {
        let (reply, answer) = oneshot::channel();
        self.0.try_send(Job { input, reply }).ok()?;
        answer.await.ok()
    }
}

/// Lowers the priority of this thread and of threads that it starts.
pub fn step_back() {
    // SAFETY: changes only the scheduling of the calling thread, on Linux; a refusal changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("libonnxruntime.so");
        assert!(matches!(open(&library), Err(Error::NoRuntime(path)) if path == library));
    }

    #[test]
    fn a_file_that_is_no_library_is_refused() {
        // The library that a process opens first stays, whatever it asks for later.
        let program = std::env::current_exe().expect("this program");
        let alone = ["--exact", "onnx::tests::alone_a_file_that_is_no_library_is_refused", "--ignored"];
        let output = std::process::Command::new(program).args(alone).output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    }

    #[test]
    #[ignore = "runs in a process of its own, by the test above"]
    fn alone_a_file_that_is_no_library_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("libonnxruntime.so");
        std::fs::write(&library, "not a library").expect("written");
        assert!(matches!(open(&library), Err(Error::Runtime(_))));
    }

    #[tokio::test]
    async fn a_worker_answers_in_turn_and_survives_a_panic() {
        let load = || Ok::<_, Error>(|n: u32| if n == 0 { panic!("by the test") } else { n + 1 });
        let worker = Worker::start("test", load).expect("started");
        assert_eq!(worker.ask(1).await, Some(2));
        assert_eq!(worker.ask(0).await, None);
        assert_eq!(worker.ask(2).await, Some(3));
        let load = || Err::<fn(u32) -> u32, _>(Error::Died);
        assert!(matches!(Worker::start("test", load), Err(Error::Died)));
    }
}
