//! The screen of `tensord top`: a pure function of the figures, their history, the size and the
//! order of models.

use std::cmp::Reverse;
use std::collections::VecDeque;

use pages::human_bytes;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, Widget as _};

use super::figures::{DeviceFigures, ModelFigures, TopFigures};
use super::history::History;
use super::queues::micros;
use crate::commands::memory::shorten;

/// The order of models.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SortKey {
    #[default]
    Requests,
    Latency,
    Memory,
    Name,
}

impl SortKey {
    /// The keys of the keyboard, and what they sort by.
    pub(super) const ALL: [(char, Self); 4] =
        [('r', Self::Requests), ('l', Self::Latency), ('m', Self::Memory), ('n', Self::Name)];

    fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Latency => "latency",
            Self::Memory => "memory",
            Self::Name => "name",
        }
    }
}

/// Everything that a screen shows.
#[derive(Debug, Clone, Default)]
pub(super) struct TopView {
    /// The server's address, as it was typed.
    pub(super) address: String,
    pub(super) figures: TopFigures,
    pub(super) history: History,
    pub(super) sort: SortKey,
    /// The number of models above the first that is shown.
    pub(super) scroll: usize,
    /// The reason why the figures are old, if they are.
    pub(super) failure: Option<String>,
}

/// The lines beside devices and models: title, three sparklines, two gaps, head of models, keys.
const FIXED_LINES: u16 = 8;

/// The columns of a model behind its name.
const MODEL_COLUMNS: usize = 56;

/// The columns of the text beside a device's bar.
const DEVICE_COLUMNS: u16 = 54;

impl TopView {
    /// Draws everything that fits.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let mut pen = Pen { frame, area, row: 0 };
        self.draw_title(&mut pen);
        let room = area.height.saturating_sub(FIXED_LINES);
        self.draw_devices(&mut pen, usize::from((room / 2).max(1)));
        pen.row += 1;
        self.draw_history(&mut pen);
        pen.row += 1;
        self.draw_models(&mut pen);
        self.draw_keys(&mut pen);
    }

    fn draw_title(&self, pen: &mut Pen<'_, '_>) {
        let n = self.figures.models.len();
        let noun = if n == 1 { "model" } else { "models" };
        let held = human_bytes(self.figures.held_bytes);
        let title = format!("tensord top  {}  {n} {noun}, {held} held", self.address);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        match &self.failure {
            None => pen.line(Line::styled(title, bold)),
            Some(failure) => {
                pen.line(Line::styled(format!("no news: {failure}"), bold.fg(Color::Red)));
            }
        }
    }

    /// Draws devices with bars, each as long as the device's limit: so all bars have one scale.
    fn draw_devices(&self, pen: &mut Pen<'_, '_>, n_lines: usize) {
        let devices = &self.figures.devices;
        let n_shown = if devices.len() > n_lines { n_lines - 1 } else { devices.len() };
        let bar = usize::from(pen.area.width.saturating_sub(DEVICE_COLUMNS).clamp(10, 60));
        devices[..n_shown].iter().for_each(|device| pen.line(device_line(device, bar)));
        if n_shown < devices.len() {
            pen.line(Line::raw(format!("… and {} more devices", devices.len() - n_shown)));
        }
    }

    fn draw_history(&self, pen: &mut Pen<'_, '_>) {
        let TopFigures { answers, p99_micros, held_bytes, .. } = &self.figures;
        let rate = answers.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.1}/s"));
        let latency = p99_micros.map_or_else(|| "–".to_owned(), micros);
        pen.series("requests", &rate, &self.history.answers);
        pen.series("latency p99", &latency, &self.history.micros);
        pen.series("memory", &human_bytes(*held_bytes), &self.history.bytes);
    }

    fn draw_models(&self, pen: &mut Pen<'_, '_>) {
        let width = usize::from(pen.area.width).saturating_sub(MODEL_COLUMNS).max(8);
        let head = format!(
            "{:<width$} {:>7} {:>9} {:>9} {:>6} {:>10} {}",
            "model", "waiting", "answers/s", "p99", "rows", "memory", "state"
        );
        pen.line(Line::styled(head, Style::new().add_modifier(Modifier::REVERSED)));
        let models = self.sorted();
        // One line is for the keys, and one for those that do not fit.
        let room = usize::from(pen.rest().saturating_sub(1));
        let fits = models.len() <= room;
        let n_shown = if fits { models.len() } else { room.saturating_sub(1) };
        let first = self.scroll.min(models.len() - n_shown);
        for model in &models[first..first + n_shown] {
            pen.line(model_line(model, width));
        }
        if !fits {
            let (above, below) = (first, models.len() - n_shown - first);
            pen.line(Line::raw(format!("… {above} above, {below} below")));
        }
    }

    /// The models in their order, the busy ones first.
    fn sorted(&self) -> Vec<&ModelFigures> {
        let mut models: Vec<&ModelFigures> = self.figures.models.iter().collect();
        let hundredths = |rate: Option<f64>| rate.map_or(0.0, |rate| rate * 100.0);
        let busy = |one: &&ModelFigures| (hundredths(one.answers), one.waiting, one.answered);
        models.sort_by(|a, b| a.name.cmp(&b.name));
        match self.sort {
            SortKey::Requests => models.sort_by(|a, b| {
                let (a, b) = (busy(a), busy(b));
                b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2))
            }),
            SortKey::Latency => models.sort_by_key(|one| Reverse(one.p99_micros)),
            SortKey::Memory => models.sort_by_key(|one| Reverse(one.bytes)),
            SortKey::Name => {}
        }
        models
    }

    fn draw_keys(&self, pen: &mut Pen<'_, '_>) {
        pen.row = pen.area.height.saturating_sub(1);
        let mut spans = vec![Span::raw("q quit  sort by")];
        for (key, sort) in SortKey::ALL {
            let style = match sort == self.sort {
                true => Style::new().add_modifier(Modifier::REVERSED),
                false => Style::new(),
            };
            let mark = if sort == self.sort { "*" } else { "" };
            spans.push(Span::raw(" "));
            spans.push(Span::styled(format!(" {key} {}{mark}", sort.name()), style));
        }
        spans.push(Span::raw("   ↑↓ scroll"));
        pen.line(Line::from(spans));
    }
}

fn device_line(device: &DeviceFigures, width: usize) -> Line<'static> {
    let DeviceFigures { name, held_bytes, limit_bytes, busy } = device;
    let share = *held_bytes as f64 / (*limit_bytes).max(1) as f64;
    let n_full = (1..=width).filter(|n| (*n as f64) <= share * width as f64 + 0.5).count();
    // A little is seen too.
    let n_full = if *held_bytes > 0 { n_full.max(1) } else { 0 };
    let color = match share {
        share if share > 0.95 => Color::Red,
        share if share > 0.8 => Color::Yellow,
        _ => Color::Green,
    };
    let busy = busy.map_or_else(String::new, |busy| format!("  busy {:>3.0} %", busy * 100.0));
    let (held, limit) = (human_bytes(*held_bytes), human_bytes(*limit_bytes));
    Line::from(vec![
        Span::raw(format!("{:<8} ", shorten(name, 8))),
        Span::styled("█".repeat(n_full), Style::new().fg(color)),
        Span::raw("░".repeat(width - n_full)),
        Span::raw(format!(" {:>4.0} %  {held:>10} of {limit:>10}{busy}", share * 100.0)),
    ])
}

fn model_line(model: &ModelFigures, width: usize) -> Line<'static> {
    let ModelFigures { name, waiting, answers, p99_micros, rows, bytes, state, .. } = model;
    let dash = || "–".to_owned();
    let line = format!(
        "{:<width$} {waiting:>7} {:>9} {:>9} {:>6} {:>10} {state}",
        shorten(name, width),
        answers.map_or_else(dash, |rate| format!("{rate:.1}")),
        p99_micros.map_or_else(dash, micros),
        rows.map_or_else(dash, |rows| format!("{rows:.1}")),
        human_bytes(*bytes),
    );
    let is_idle = answers.is_none_or(|rate| rate == 0.0) && *waiting == 0;
    let style = if is_idle { Style::new().add_modifier(Modifier::DIM) } else { Style::new() };
    Line::styled(line, style)
}

/// Draws line by line, as far as there is room.
struct Pen<'a, 'b> {
    frame: &'a mut Frame<'b>,
    area: Rect,
    row: u16,
}

impl Pen<'_, '_> {
    /// The number of lines that are left.
    fn rest(&self) -> u16 {
        self.area.height.saturating_sub(self.row)
    }

    fn row_area(&self) -> Option<Rect> {
        let Rect { x, y, width, .. } = self.area;
        (self.rest() > 0).then(|| Rect { x, y: y + self.row, width, height: 1 })
    }

    fn line(&mut self, line: Line<'_>) {
        if let Some(area) = self.row_area() {
            line.render(area, self.frame.buffer_mut());
        }
        self.row += 1;
    }

    /// A series as a sparkline behind its name and its last value.
    fn series(&mut self, name: &str, value: &str, series: &VecDeque<u64>) {
        const LABEL: u16 = 24;
        if let Some(area) = self.row_area() {
            let label = Line::raw(format!("{name:<12} {value:>10}"));
            label.render(area, self.frame.buffer_mut());
            let width = area.width.saturating_sub(LABEL);
            let area = Rect { x: area.x + LABEL.min(area.width), width, ..area };
            let n_old = series.len().saturating_sub(usize::from(width));
            let data: Vec<u64> = series.iter().skip(n_old).copied().collect();
            let style = Style::new().fg(Color::Cyan);
            Sparkline::default().data(&data).style(style).render(area, self.frame.buffer_mut());
        }
        self.row += 1;
    }
}

#[cfg(test)]
mod tests;
