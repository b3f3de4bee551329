use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use pages::{
    BatchCounts, DeviceMemory, Distribution, LaneEntry, MemoryPage, ModelEntry, ModelListPage,
    QueueEntry, RowCounts, SchedulerPage, TaskCounts, VersionEntry, VersionMemory, VersionState,
    WaitingTasks,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::commands::top::TopPages;

/// The variable that makes the test write the golden screen.
const UPDATE: &str = "UPDATE_SCREENS";

const MIB: u64 = 1 << 20;

/// A server with models on simulated GPUs, some seconds after its start: model `n` answers `n`
/// requests a second, but for the last, which loads.
struct Fleet {
    n_models: usize,
    n_gpus: usize,
    start: Instant,
}

impl Fleet {
    fn new(n_models: usize, n_gpus: usize) -> Self {
        Self { n_models, n_gpus, start: Instant::now() }
    }

    fn name(n: usize) -> String {
        format!("model_{n:02}")
    }

    fn gpu(&self, n: usize) -> String {
        format!("gpu:{}", n % self.n_gpus)
    }

    fn look(&self, seconds: u64) -> TopPages {
        let models = (0..self.n_models).map(|n| ModelEntry {
            name: Self::name(n),
            versions: vec![VersionEntry {
                version: "1".to_owned(),
                state: match n + 1 == self.n_models {
                    true => VersionState::Loading,
                    false => VersionState::Available,
                },
                ..VersionEntry::default()
            }],
            ..ModelEntry::default()
        });
        let lanes = (0..self.n_gpus).map(|gpu| LaneEntry {
            device: self.gpu(gpu),
            busy_seconds: seconds as f64 * 0.25 * gpu as f64,
            ..LaneEntry::default()
        });
        let queues = (0..self.n_models - 1).map(|n| self.queue(n, seconds));
        TopPages {
            memory: MemoryPage { devices: self.devices(seconds), ..MemoryPage::default() },
            scheduler: SchedulerPage { queues: queues.collect(), lanes: lanes.collect() },
            models: ModelListPage { models: models.collect() },
            at: self.start + Duration::from_secs(seconds),
        }
    }

    fn queue(&self, n: usize, seconds: u64) -> QueueEntry {
        let asked = n as u64 * seconds;
        let counts = |limit: u64| Distribution {
            up_to: BTreeMap::from([(limit, asked)]),
            ..Distribution::default()
        };
        QueueEntry {
            model: Self::name(n),
            version: 1,
            device: self.gpu(n),
            waiting: WaitingTasks { tasks: n % 3, ..WaitingTasks::default() },
            tasks: TaskCounts { asked, ..TaskCounts::default() },
            batches: BatchCounts { run: asked, ..BatchCounts::default() },
            rows: RowCounts { run: asked * 2, ..RowCounts::default() },
            queue_micros: counts(256),
            compute_micros: counts(1024 << (n % 4)),
            ..QueueEntry::default()
        }
    }

    fn devices(&self, seconds: u64) -> Vec<DeviceMemory> {
        let held = |gpu: usize| (gpu as u64 + 1) * 200 * MIB + seconds * MIB;
        let device = |name: String, held: u64| DeviceMemory {
            name,
            limit_bytes: 1024 * MIB,
            reserved_bytes: held,
            ..DeviceMemory::default()
        };
        let gpus = (0..self.n_gpus).map(|gpu| {
            let on_it = (0..self.n_models).filter(|n| n % self.n_gpus == gpu);
            let model = |n: usize| VersionMemory {
                name: Self::name(n),
                version: 1,
                bytes: (self.n_models - n) as u64 * MIB,
                ..VersionMemory::default()
            };
            DeviceMemory { models: on_it.map(model).collect(), ..device(self.gpu(gpu), held(gpu)) }
        });
        std::iter::once(device("cpu:0".to_owned(), 90 * MIB)).chain(gpus).collect()
    }

    /// The screen after some looks, one a second.
    fn watched(&self, n_looks: u64) -> TopView {
        let mut view = TopView { address: "localhost:8501".to_owned(), ..TopView::default() };
        let mut before = None;
        for seconds in 1..=n_looks {
            let look = self.look(seconds);
            view.show(TopFigures::of(&look, before.as_ref()));
            before = Some(look);
        }
        view
    }
}

/// A screen as text: what is drawn at a size, without blanks at the ends of lines.
fn drawn(view: &TopView, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        line.trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

fn press(view: &mut TopView, key: char) -> bool {
    view.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))
}

/// The names of the models on a screen.
fn models(screen: &str) -> Vec<&str> {
    screen.lines().filter_map(|line| line.strip_prefix("model_")?.split(':').next()).collect()
}

#[test]
fn the_screen_at_80_by_24_is_the_golden_one() {
    let screen = drawn(&Fleet::new(5, 2).watched(12), 80, 24);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/screens/top.txt");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, &screen).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(screen, golden, "run with {UPDATE}=1 and read the diff");
}

#[test]
fn sixty_models_on_four_gpus_fit_and_the_busiest_are_shown() {
    let view = Fleet::new(60, 4).watched(3);
    let screen = drawn(&view, 80, 24);
    assert_eq!(screen.lines().count(), 24, "{screen}");
    for device in ["cpu:0", "gpu:0", "gpu:1", "gpu:2", "gpu:3"] {
        assert!(screen.contains(&format!("\n{device} ")), "{device} in\n{screen}");
    }
    let shown = models(&screen);
    assert!(shown.len() >= 8 && shown[..3] == ["58", "57", "56"], "{screen}");
    assert!(screen.contains("… 0 above, ") && screen.contains("q quit"), "{screen}");
}

#[test]
fn keys_sort_scroll_and_leave() {
    let mut view = Fleet::new(60, 4).watched(3);
    let mut first = |key| {
        assert!(!press(&mut view, key), "{key}");
        models(&drawn(&view, 80, 24))[0].to_owned()
    };
    assert_eq!(first('m'), "00", "the one with the most memory");
    assert_eq!(first('n'), "00");
    assert_eq!(first('l'), "03", "the slowest, by name");
    assert_eq!(first('r'), "58");
    assert_eq!(first('x'), "58", "no key");
    view.press(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
    assert_eq!(models(&drawn(&view, 80, 24))[0], "57");
    view.press(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    let end = drawn(&view, 80, 24);
    assert!(end.contains(", 0 below") && end.contains("loading"), "{end}");
    assert!(press(&mut view, 'q'));
    assert!(view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn every_size_is_drawn_without_a_line_beyond_it() {
    let view = Fleet::new(60, 4).watched(3);
    for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 12), (200, 60)] {
        let screen = drawn(&view, width, height);
        assert_eq!(screen.lines().count(), usize::from(height));
    }
    let large = drawn(&view, 200, 80);
    assert_eq!(models(&large).len(), 60, "{large}");
}

#[test]
fn a_server_that_does_not_answer_is_told_in_the_title() {
    let mut view = Fleet::new(2, 1).watched(2);
    view.failure = Some("no server answers at localhost:8501".to_owned());
    let screen = drawn(&view, 80, 24);
    assert!(screen.starts_with("no news: no server answers at localhost:8501"), "{screen}");
    assert_eq!(models(&screen).len(), 2, "the old figures stay: {screen}");
}
