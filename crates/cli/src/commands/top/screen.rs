//! The screen on a terminal: keys and looks come as events, and each changes what is drawn.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use anyhow::{Context as _, Result, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::figures::TopFigures;
use super::view::{SortKey, TopView};
use super::{PageClient, Top, TopPages};

/// Something that the screen follows.
enum TopEvent {
    Looked(Box<TopPages>),
    /// The server gave no answer; it is asked again.
    Failed(String),
    /// That was the last look.
    Over,
    Pressed(KeyEvent),
    Resized,
    /// There is no terminal any more.
    Gone(std::io::Error),
}

/// Models that a page key goes over.
const PAGE_MODELS: usize = 10;

/// Restores the terminal when it is dropped.
struct RestoreGuard;

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the screen until it is left, or the last look was taken.
pub(super) fn run(top: &Top, mut client: PageClient) -> Result<()> {
    // A mistake in the address is told before the screen is taken.
    let first = TopPages::ask(&mut client)?;
    let (send, events) = mpsc::channel();
    let mut view = TopView { address: top.server.address().to_owned(), ..TopView::default() };
    let (pause, times) = (top.pause(), top.times);
    let asker = send.clone();
    let terminal = ratatui::try_init().context("cannot draw on this terminal");
    let _guard = RestoreGuard;
    thread::spawn(move || ask(client, &asker, (pause, times)));
    thread::spawn(move || read_keys(&send));
    let mut before = first;
    view.show(TopFigures::of(&before, None));
    follow(&mut terminal?, &mut view, &mut before, &events)
}

/// Draws after each event, until one ends it.
fn follow(
    terminal: &mut DefaultTerminal,
    view: &mut TopView,
    before: &mut TopPages,
    events: &Receiver<TopEvent>,
) -> Result<()> {
    loop {
        terminal.draw(|frame| view.draw(frame)).context("cannot draw on this terminal")?;
        match events.recv().context("nobody asks the server any more")? {
            TopEvent::Looked(pages) => {
                view.show(TopFigures::of(&pages, Some(before)));
                *before = *pages;
            }
            TopEvent::Failed(failure) => view.failure = Some(failure),
            TopEvent::Over => return Ok(()),
            TopEvent::Pressed(key) if view.press(key) => return Ok(()),
            TopEvent::Pressed(_) | TopEvent::Resized => {}
            TopEvent::Gone(error) => bail!("the terminal is gone: {error}"),
        }
    }
}

/// Asks the server after each pause, until the screen is gone or the last look was taken.
fn ask(
    mut client: PageClient,
    screen: &Sender<TopEvent>,
    (every, times): (std::time::Duration, u64),
) {
    let (_never, pause) = mpsc::channel::<()>();
    let mut n_looks = 1;
    loop {
        if n_looks == times {
            drop(screen.send(TopEvent::Over));
            return;
        }
        let _ = pause.recv_timeout(every);
        let event = match TopPages::ask(&mut client) {
            Ok(pages) => TopEvent::Looked(Box::new(pages)),
            Err(error) => TopEvent::Failed(format!("{error:#}")),
        };
        n_looks += 1;
        if screen.send(event).is_err() {
            return;
        }
    }
}

/// Sends keys and changes of the size, until the screen is gone.
fn read_keys(screen: &Sender<TopEvent>) {
    loop {
        let event = match event::read() {
            Ok(Event::Key(key)) => TopEvent::Pressed(key),
            Ok(Event::Resize(..)) => TopEvent::Resized,
            Ok(_) => continue,
            Err(error) => {
                drop(screen.send(TopEvent::Gone(error)));
                return;
            }
        };
        if screen.send(event).is_err() {
            return;
        }
    }
}

impl TopView {
    /// Shows the figures of a look.
    pub(super) fn show(&mut self, figures: TopFigures) {
        self.history.add(&figures);
        self.figures = figures;
        self.failure = None;
    }

    /// Does what a key says; returns whether it says that the screen is to be left.
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let last = self.figures.models.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char(pressed) => {
                if let Some((_, sort)) = SortKey::ALL.into_iter().find(|(key, _)| *key == pressed) {
                    self.sort = sort;
                    self.scroll = 0;
                }
            }
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll = (self.scroll + 1).min(last),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE_MODELS),
            KeyCode::PageDown => self.scroll = (self.scroll + PAGE_MODELS).min(last),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = last,
            _ => {}
        }
        false
    }
}
