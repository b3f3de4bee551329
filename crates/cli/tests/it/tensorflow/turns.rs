//! The order of runs in a worker: those that go first, are refused, or never run.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pages::MemoryPage;
use proto::serving::PredictRequest;
use proto::serving::prediction_service_client::PredictionServiceClient;
use proto::tensorflow::ConfigProto;
use session::{Priorities, Run, Servable};
use status::Status;
use tensor::{Layout, Tensor};
use tensorflow::{GpuOptions, ModelSettings, Options, Renewal, Threads, Workers, session_config};
use tonic::Code;
use tonic::metadata::MetadataMap;

use super::memory::{load, options, run, spin_for_ever};
use super::{fallback, spec, until, with_tensorflow};
use crate::page::Shown as _;
use crate::support::{Server, tensord};

/// Workers that run one thing at a time.
fn one_by_one() -> Workers {
    // TensorFlow's own threads are held by what it cannot end.
    let threads = Threads { intra: 1, inter: 4 };
    let session = session_config(&ConfigProto::default(), threads, &GpuOptions::default());
    Workers::new(Options { n_threads: 1, session, ..options(Renewal::Never) })
}

/// A run that was started: the way to cancel it, and its answer.
struct Wanted {
    is_cancelled: Arc<AtomicBool>,
    answer: mpsc::Receiver<status::Result<Vec<Tensor>>>,
}

fn start(servable: &Servable, signature: &str, input: Tensor, deadline: Option<Instant>) -> Wanted {
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let run = order(signature, input, deadline, &is_cancelled);
    let (send, answer) = mpsc::channel();
    servable.engine.start(run, Box::new(move |answer| drop(send.send(answer))));
    Wanted { is_cancelled, answer }
}

fn order(
    signature: &str,
    input: Tensor,
    deadline: Option<Instant>,
    is_cancelled: &Arc<AtomicBool>,
) -> Run {
    Run {
        signature: signature.to_owned(),
        inputs: vec![input],
        outputs: vec![0],
        level: None,
        deadline,
        is_cancelled: Arc::clone(is_cancelled),
    }
}

/// Returns the time that a run of `spin` is expected to take, with the runs that wait.
fn forecast(servable: &Servable) -> schedule::Replica {
    let run = order("serving_default", Tensor::scalar(1i64).unwrap(), None, &Arc::default());
    servable.engine.forecast(&run).expect("the worker knows its runs")
}

#[test]
fn what_cannot_be_answered_in_time_is_refused_by_what_was_measured() {
    let workers = one_by_one();
    let servable = load(&workers, "spin", &ModelSettings::default());
    servable.engine.set_priorities(&Priorities::plain()).unwrap();
    assert!(!forecast(&servable).forecast.is_measured);
    let mut n = 10_000i64;
    while forecast(&servable).forecast.finish < Duration::from_millis(50) {
        run(&servable, "serving_default", vec![Tensor::scalar(n).unwrap()]);
        assert!(forecast(&servable).forecast.is_measured);
        n *= 2;
    }
    let one = forecast(&servable);
    assert_eq!((one.forecast.n_busy, one.until_ready), (0, Duration::ZERO));
    let running = spin_for_ever(&servable);
    until("it runs", || forecast(&servable).forecast.n_busy == 1);
    let n = || Tensor::scalar(1i64).unwrap();
    let waiting: Vec<Wanted> =
        (0..98).map(|_| start(&servable, "serving_default", n(), None)).collect();
    let deadline = Instant::now() + 50 * one.forecast.finish;
    let refused = start(&servable, "serving_default", n(), Some(deadline));
    let answer = refused.answer.recv().unwrap();
    let Err(Status { code: status::Code::Unavailable, message: text, retry_after, .. }) = answer
    else {
        panic!("{answer:?}")
    };
    assert!(text.contains("98 requests wait already"), "{text}");
    assert!(retry_after.unwrap() > 50 * one.forecast.finish, "{retry_after:?}");
    assert_eq!(workers.snapshot()[0].n_waiting, 98);
    // Those who go away leave nothing behind.
    waiting.iter().for_each(|one| one.is_cancelled.store(true, Ordering::Relaxed));
    until("their places are free", || workers.snapshot()[0].n_waiting == 0);
    running.store(true, Ordering::Relaxed);
    let next = start(&servable, "serving_default", n(), None);
    assert!(next.answer.recv().unwrap().is_ok());
    assert_eq!(workers.snapshot()[0].n_abandoned, 1);
}

#[test]
fn what_is_given_up_or_late_while_it_waits_is_never_run() {
    let workers = one_by_one();
    let spin = load(&workers, "spin", &ModelSettings::default());
    let keeper = load(&workers, "keeper", &ModelSettings::default());
    let kept = || run(&keeper, "serving_default", Vec::new())[0].as_slice::<f32>().to_vec();
    let put = |x: f32, deadline| {
        let x = Tensor::from_slice(tensor::Shape::of(&[4, 1024]), &vec![x; 4096]).unwrap();
        start(&keeper, "put", x, deadline)
    };
    let before = kept();
    let running = spin_for_ever(&spin);
    until("it runs", || workers.snapshot()[0].n_running == 1);
    let given_up = put(7.0, None);
    let late = put(8.0, Some(Instant::now() + Duration::from_millis(5)));
    let answer = late.answer.recv().unwrap();
    assert!(
        matches!(answer, Err(Status { code: status::Code::DeadlineExceeded, .. })),
        "{answer:?}"
    );
    given_up.is_cancelled.store(true, Ordering::Relaxed);
    let answer = given_up.answer.recv().unwrap();
    assert!(matches!(answer, Err(Status { code: status::Code::Cancelled, .. })), "{answer:?}");
    assert_eq!(workers.snapshot()[0].n_waiting, 0);
    running.store(true, Ordering::Relaxed);
    assert_eq!(kept(), before);
    assert!(put(9.0, None).answer.recv().unwrap().is_ok());
    assert_eq!(kept(), vec![9.0; 4096]);
}

type Answer = Result<(), (Code, MetadataMap)>;

/// Asks `spin` for so many turns, at a priority.
async fn spin(port: u16, n: i64, level: usize) -> Answer {
    let n = Tensor::scalar(n).unwrap().to_proto(Layout::Values).unwrap();
    let mut request = tonic::Request::new(PredictRequest {
        model_spec: Some(spec("spin", "")),
        inputs: [("n".to_owned(), n)].into_iter().collect(),
        ..PredictRequest::default()
    });
    request.metadata_mut().insert("tensord-priority", level.to_string().parse().unwrap());
    let client = PredictionServiceClient::connect(format!("http://127.0.0.1:{port}")).await;
    let answer = client.unwrap().predict(request).await;
    answer.map(drop).map_err(|status| (status.code(), status.metadata().clone()))
}

#[test]
fn levels_have_their_limits_in_a_worker_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("models");
    let text = format!(
        "model_config_list {{ config {{ name: 'spin' base_path: '{}' scheduling {{ weight: 3 \
         level {{}} level {{ max_enqueued_batches {{ value: 1 }} }} \
         level {{ queue_timeout_micros {{ value: 1000 }} }} }} }} }}",
        fallback().join("spin").display()
    );
    fs::write(&file, text).unwrap();
    let flag = format!("--model_config_file={}", file.display());
    let server = Server::start(with_tensorflow(tensord()), &[&flag]);
    // How many run, and how many wait.
    let busy = || {
        let worker = &MemoryPage::get(&server).workers[0];
        [worker.running, worker.waiting]
    };
    let port = server.grpc;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(spin(port, 3, 0)).unwrap();
    let page = server.rest_until("/v1/scheduler", "\"weight\": 3");
    for said in ["\"max_enqueued_batches\": 1,", "\"queue_timeout_micros\": 1000", "not proved"] {
        assert!(page.contains(said), "{said} in {page}");
    }
    // One more than there are places.
    for n in 1.. {
        runtime.spawn(spin(port, i64::MAX, 0));
        until("it is there", || busy().iter().sum::<usize>() == n);
        if busy()[1] > 0 {
            break;
        }
    }
    runtime.spawn(spin(port, 1, 1));
    until("one of the second level waits", || busy()[1] == 2);
    let has_hint = |metadata: &MetadataMap| metadata.contains_key("grpc-retry-pushback-ms");
    let (code, metadata) = runtime.block_on(spin(port, 1, 1)).unwrap_err();
    assert_eq!((code, has_hint(&metadata)), (Code::Unavailable, true));
    let (code, metadata) = runtime.block_on(spin(port, 1, 2)).unwrap_err();
    assert_eq!((code, has_hint(&metadata)), (Code::DeadlineExceeded, false));
    // When those who asked are gone, nobody waits and nothing is in the books.
    runtime.shutdown_background();
    until("they are gone", || busy() == [0, 0]);
}
