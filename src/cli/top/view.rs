//! The live screen of `chronos top`: figures, rates over the last minutes, and tables. What does
//! not fit into the window is left out, the least important first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, Wrap};
use serde_json::Value;

use super::sample::{Between, CREATES, POPS, Sample};
use super::screen::{late, length, state_of, trouble_of};
use crate::cli::service::Failure;
use crate::cli::shown::{clean, word_of};

/// Samples whose rates are kept.
const HISTORY_MAX: usize = 400;
/// Columns of a figure with its name.
const FIGURE_COLUMNS: u16 = 26;
/// Most columns of what is wrong with a host.
const WHY_COLUMNS_MAX: usize = 32;
/// Rows of the rates over time, with their titles.
const RATE_ROWS: u16 = 4;
/// A node that is silent for longer is told of.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Windows with fewer rows do not show them.
const RATES_FROM_ROWS: u16 = 20;

/// What is shown: the last two samples, what came of them before, and why there is no newer one.
#[derive(Default)]
pub(super) struct Shown {
    before: Option<Sample>,
    after: Option<Sample>,
    creates: VecDeque<u64>,
    pops: VecDeque<u64>,
    problem: Option<String>,
    /// When the node was asked first for what it has not said.
    asked: Option<Instant>,
}

/// What a word says, for its colour.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tone {
    Good,
    Poor,
    Bad,
    Plain,
}

/// Styles, or none where the user wants no colours.
#[derive(Clone, Copy)]
struct Palette {
    is_coloured: bool,
}

impl Palette {
    fn style(self, style: Style) -> Style {
        if self.is_coloured { style } else { Style::default() }
    }

    fn strong(self) -> Style {
        self.style(Style::default().add_modifier(Modifier::BOLD))
    }

    fn dim(self) -> Style {
        self.style(Style::default().fg(Color::DarkGray))
    }

    fn of(self, tone: Tone) -> Style {
        let colour = match tone {
            Tone::Good => Color::Green,
            Tone::Poor => Color::Yellow,
            Tone::Bad => Color::Red,
            Tone::Plain => return Style::default(),
        };
        self.style(Style::default().fg(colour))
    }
}

/// What a word of a node says.
fn tone_of(word: &str) -> Tone {
    match word {
        "serving" | "alive" => Tone::Good,
        "suspect" | "starting" | "stopping" | "left" => Tone::Poor,
        "dead" | "failed" => Tone::Bad,
        why if why.contains("breaker open") => Tone::Bad,
        _ => Tone::Plain,
    }
}

impl Shown {
    /// Notes that the node is asked.
    pub(super) fn ask(&mut self, now: Instant) {
        self.asked.get_or_insert(now);
    }

    /// For how long the node has been silent; `None`: it may be about to answer.
    fn silence(&self, now: Instant) -> Option<Duration> {
        let silence = now.saturating_duration_since(self.asked?);
        (silence >= SILENCE_MAX).then_some(silence)
    }

    /// Takes what the node said, or why it said nothing.
    pub(super) fn take(&mut self, taken: Result<Sample, Failure>) {
        match taken {
            Ok(sample) => {
                self.problem = None;
                self.asked = None;
                self.before = self.after.take();
                self.after = Some(sample);
                let between = self.between().filter(|_| self.before.is_some());
                let rates = between
                    .map(|between| [&CREATES[..], &POPS].map(|of| between.per_second(of) as u64));
                if let Some([creates, pops]) = rates {
                    keep(&mut self.creates, creates);
                    keep(&mut self.pops, pops);
                }
            }
            Err(error) => self.problem = Some(clean(&error.to_string()).into_owned()),
        }
    }

    fn between(&self) -> Option<Between<'_>> {
        let after = self.after.as_ref()?;
        Some(Between::new(self.before.as_ref().unwrap_or(after), after))
    }

    /// Draws the whole window.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, is_coloured: bool, now: Instant) {
        let palette = Palette { is_coloured };
        let silence = self.silence(now);
        let [head, mut body] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
        frame.render_widget(Paragraph::new(self.title(palette, now)), head);
        if let Some(text) = self.trouble(silence) {
            // As many rows as the sentences need in this window, and one more.
            let columns = usize::from(body.width.max(1));
            let rows = text.lines().map(|line| line.chars().count().div_ceil(columns));
            let rows = u16::try_from(rows.sum::<usize>() + 1).unwrap_or(u16::MAX);
            let told = Paragraph::new(text).wrap(Wrap { trim: false });
            let area = cut_off(&mut body, rows);
            frame.render_widget(told.style(palette.of(Tone::Bad)), area);
        }
        let Some(between) = self.between() else { return };
        let figures = body;
        draw_figures(frame, &mut body, &between, palette);
        if frame.area().height >= RATES_FROM_ROWS {
            self.draw_rates(frame, &mut body, palette);
        }
        draw_tables(frame, body, &between, palette);
        if self.is_old(silence) {
            frame.buffer_mut().set_style(figures, palette.dim());
        }
    }

    /// Whether what is shown was said before the node fell silent.
    fn is_old(&self, silence: Option<Duration>) -> bool {
        silence.is_some() || self.problem.is_some()
    }

    /// Says what keeps the node from saying anything newer; `None`: nothing.
    fn trouble(&self, silence: Option<Duration>) -> Option<String> {
        let silence = silence.map(|silence| format!("no answer for {} s", silence.as_secs()));
        let told: Vec<String> = silence.into_iter().chain(self.problem.clone()).collect();
        (!told.is_empty()).then(|| told.join("\n") + "\nlooking again; q ends")
    }

    fn title(&self, palette: Palette, now: Instant) -> Line<'static> {
        let Some(after) = &self.after else { return Line::from("asking the node; q ends") };
        let status = &after.status;
        let mut state = state_of(status);
        let uptime = status["uptime_ms"].as_u64().unwrap_or(0) / 1_000;
        let name = word_of(&status["cluster"]["name"]);
        let mut tone = palette.of(tone_of(status["state"].as_str().unwrap_or_default()));
        if self.is_old(self.silence(now)) {
            let age_s = now.saturating_duration_since(after.at).as_secs();
            state = format!("{state} {age_s} s ago");
            tone = palette.dim();
        }
        Line::from(vec![
            Span::styled(
                format!("chronos {}  {name}  ", word_of(&status["version"])),
                palette.strong(),
            ),
            Span::styled(state, tone),
            Span::raw(format!("  up {}", length(uptime))),
            Span::styled("  q ends", palette.dim()),
        ])
    }

    fn draw_rates(&self, frame: &mut Frame<'_>, body: &mut Rect, palette: Palette) {
        let area = cut_off(body, RATE_ROWS);
        let halves = [Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)];
        let [left, _, right] = Layout::horizontal(halves).areas(area);
        for (area, name, rates) in
            [(left, "creates/s", &self.creates), (right, "pops/s", &self.pops)]
        {
            let shown = rates.len().min(area.width.into());
            let rates: Vec<u64> = rates.iter().skip(rates.len() - shown).copied().collect();
            let most = rates.iter().max().copied().unwrap_or(0);
            let rows = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
            let [title, chart, _] = Layout::vertical(rows).areas(area);
            let text = format!("{name}, at most {most}");
            frame.render_widget(Paragraph::new(text).style(palette.dim()), title);
            let chart_style = palette.style(Style::default().fg(Color::Cyan));
            frame.render_widget(Sparkline::default().data(&rates).style(chart_style), chart);
        }
    }
}

fn keep(history: &mut VecDeque<u64>, rate: u64) {
    if history.len() == HISTORY_MAX {
        history.pop_front();
    }
    history.push_back(rate);
}

/// Takes rows from the top of an area, as many as there are.
fn cut_off(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    let taken = Rect { height: rows, ..*area };
    area.y += rows;
    area.height -= rows;
    taken
}

/// Draws the figures in as many columns as fit.
fn draw_figures(frame: &mut Frame<'_>, body: &mut Rect, between: &Between<'_>, palette: Palette) {
    let rate = |counters: &[&str]| format!("{:.0}", between.per_second(counters));
    let now = |figure: &str| between.now(figure).to_string();
    let figures = [
        ("late p50", late(between, 0.5)),
        ("late p99", late(between, 0.99)),
        ("late p99.9", late(between, 0.999)),
        ("timers", now("timers")),
        ("creates/s", rate(&CREATES)),
        ("pops/s", rate(&POPS)),
        ("failures/s", rate(&["pops_failed"])),
        ("given up/s", rate(&["pops_given_up"])),
        ("overdue", format!("{} ms", now("oldest_overdue_ms"))),
        ("waiting", now("pops_waiting")),
        ("in flight", now("pops_in_flight")),
        ("dead letters", now("dead_letters")),
    ];
    let columns = (body.width / FIGURE_COLUMNS).max(1);
    let rows = figures.len().div_ceil(columns.into());
    // A row is left free below them.
    let area = cut_off(body, u16::try_from(rows + 1).unwrap_or(u16::MAX));
    for (place, (name, value)) in figures.iter().enumerate() {
        let place = u16::try_from(place).unwrap_or(u16::MAX);
        let (row, column) = (place / columns, place % columns);
        if row >= area.height {
            return;
        }
        let x = area.x + column * FIGURE_COLUMNS;
        let width = FIGURE_COLUMNS.min(area.right().saturating_sub(x));
        let line = Line::from(vec![
            Span::styled(format!("{name:<13}"), palette.dim()),
            Span::styled(value.clone(), palette.strong()),
        ]);
        frame.render_widget(Paragraph::new(line), Rect { x, y: area.y + row, width, height: 1 });
    }
}

/// A table with a head, whose first column takes what is left.
struct Listed {
    head: Vec<&'static str>,
    widths: Vec<u16>,
    rows: Vec<Vec<String>>,
    /// How many there are beyond the rows.
    more: usize,
}

fn draw_tables(frame: &mut Frame<'_>, mut body: Rect, between: &Between<'_>, palette: Palette) {
    let mut lists = vec![hosts_of(between.after), cores_of(between)];
    let members = members_of(&between.after.status);
    // A node alone is its only member.
    let place = usize::from(!lists[0].rows.is_empty());
    lists.insert(if members.rows.len() > 1 { place } else { lists.len() }, members);
    lists.retain(|list| !list.rows.is_empty());
    let count = lists.len();
    for (place, list) in lists.into_iter().enumerate() {
        let told = usize::from(list.more > 0);
        // Those that follow keep room for a head, a row and the free row before them.
        let reserved = u16::try_from((count - place - 1) * 3).unwrap_or(u16::MAX);
        let wanted = u16::try_from(list.rows.len() + told + 1).unwrap_or(u16::MAX);
        let rows = wanted.min(body.height.saturating_sub(reserved).max(2));
        let area = cut_off(&mut body, rows);
        draw_list(frame, area, list, palette);
        cut_off(&mut body, 1);
    }
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, mut list: Listed, palette: Palette) {
    let room = usize::from(area.height.saturating_sub(1));
    let told = usize::from(list.more > 0);
    if list.rows.len() + told > room && room > 1 {
        list.more += list.rows.len() - (room - 1);
        list.rows.truncate(room - 1);
    }
    if list.more > 0 && list.rows.len() < room {
        let left_out = list.more;
        list.rows.push(vec![format!("and {left_out} more")]);
    }
    // In a narrow window the last columns go, and the first one keeps some room.
    let mut shown = list.widths.len();
    let first_min = 16;
    while shown > 0 && list.widths[..shown].iter().sum::<u16>() + first_min > area.width {
        shown -= 1;
    }
    let widths: Vec<Constraint> = [Constraint::Fill(1)]
        .into_iter()
        .chain(list.widths[..shown].iter().map(|width| Constraint::Length(*width)))
        .collect();
    let rows = list.rows.into_iter().map(|cells| {
        Row::new(cells.into_iter().map(|cell| {
            let style = palette.of(tone_of(&cell));
            Cell::from(cell).style(style)
        }))
    });
    let head = Row::new(list.head).style(palette.strong());
    frame.render_widget(Table::new(rows, widths).header(head).column_spacing(1), area);
}

fn cores_of(between: &Between<'_>) -> Listed {
    let row = |(place, core): (usize, &Value)| {
        let rate = |counters: &[&str]| between.per_second_of(place, counters);
        vec![
            word_of(&core["core"]),
            word_of(&core["timers"]),
            format!("{:.0}", rate(&CREATES)),
            format!("{:.0}", rate(&POPS)),
            format!("{:.0} %", rate(&["cpu_ns"]) / 1e7),
        ]
    };
    Listed {
        head: vec!["CORE", "TIMERS", "CREATES/S", "POPS/S", "CPU"],
        widths: vec![12, 10, 10, 6],
        rows: between.cores().iter().enumerate().map(row).collect(),
        more: 0,
    }
}

fn hosts_of(after: &Sample) -> Listed {
    let row = |host: &Value| {
        vec![word_of(&host["destination"]), trouble_of(host), word_of(&host["queue"])]
    };
    let rows: Vec<Vec<String>> = after.hosts.iter().map(row).collect();
    let longest = rows.iter().map(|row| row[1].chars().count()).max().unwrap_or(0);
    let why = u16::try_from(longest.min(WHY_COLUMNS_MAX)).unwrap_or(0);
    Listed {
        head: vec!["HOST IN TROUBLE", "WHY", "QUEUE"],
        widths: vec![why, 10],
        rows,
        more: after.more_hosts,
    }
}

fn members_of(status: &Value) -> Listed {
    let cells = ["name", "liveness", "role", "kept_bytes"];
    let members = status["cluster"]["members"].as_array().map_or(&[][..], Vec::as_slice);
    let row = |member: &Value| cells.map(|cell| word_of(&member[cell])).to_vec();
    Listed {
        head: vec!["MEMBER", "LIVENESS", "ROLE", "KEPT BYTES"],
        widths: vec![10, 10, 12],
        rows: members.iter().map(row).collect(),
        more: 0,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;

    use super::*;
    use crate::cli::top::sample::two_samples;

    fn shown() -> Shown {
        let (before, after) = two_samples();
        let mut shown = Shown::default();
        shown.take(Ok(before));
        shown.take(Ok(after));
        shown
    }

    fn drawn(shown: &Shown, columns: u16, rows: u16, is_coloured: bool) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("in memory");
        let at = Instant::now();
        terminal.draw(|frame| shown.draw(frame, is_coloured, at)).expect("in memory");
        terminal.backend().buffer().clone()
    }

    /// The same after a silence of so many seconds.
    fn drawn_after(shown: &Shown, seconds: u64, is_coloured: bool) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("in memory");
        let at = Instant::now() + Duration::from_secs(seconds);
        terminal.draw(|frame| shown.draw(frame, is_coloured, at)).expect("in memory");
        terminal.backend().buffer().clone()
    }

    fn text(buffer: &Buffer) -> String {
        let columns = usize::from(buffer.area.width).max(1);
        let rows = buffer.content.chunks(columns);
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
    }

    #[test]
    fn a_window_of_80_by_24_tells_all_and_acts_on_no_terminal() {
        let text = text(&drawn(&shown(), 80, 24, true));
        for told in [
            "serving",
            "up 1 min",
            "late p99.9",
            "above 60 s",
            "creates/s",
            "200",
            "CORE",
            "open",
            "dead",
            "MEMBER",
            "at most 200",
        ] {
            assert!(text.contains(told), "{told} is not in\n{text}");
        }
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }

    #[test]
    fn any_window_is_drawn_and_a_narrow_one_keeps_what_matters() {
        let shown = shown();
        for columns in [1, 2, 7, 20, 26, 40, 79, 300] {
            for rows in [1, 2, 3, 6, 12, 20, 60] {
                drawn(&shown, columns, rows, true);
            }
        }
        let text = text(&drawn(&shown, 40, 24, false));
        for told in ["late p99.9", "timers", "HOST IN TROUBLE", "open"] {
            assert!(text.contains(told), "{told} is not in\n{text}");
        }
    }

    #[test]
    fn without_colours_nothing_has_a_style() {
        let plain = drawn(&shown(), 80, 24, false);
        let is_plain = |cell: &ratatui::buffer::Cell| {
            cell.fg == Color::Reset && cell.bg == Color::Reset && cell.modifier.is_empty()
        };
        assert!(plain.content.iter().all(is_plain));
        let coloured = drawn(&shown(), 80, 24, true);
        assert!(coloured.content.iter().any(|cell| cell.fg == Color::Red), "what is dead is red");
    }

    #[test]
    fn a_node_that_does_not_answer_is_told_of_beside_what_was_known() {
        let mut shown = shown();
        shown.take(Err(Failure::Unanswered("a\u{1b} does not answer".into())));
        let told = text(&drawn(&shown, 80, 24, true));
        assert!(told.contains("does not answer") && told.contains("q ends"), "{told}");
        assert!(told.contains("late p50"), "{told}");
        let mut never = Shown::default();
        never.take(Err(Failure::Unanswered("nobody".into())));
        assert!(text(&drawn(&never, 20, 5, false)).contains("nobody"));
    }

    #[test]
    fn after_3_s_without_an_answer_what_is_shown_is_said_to_be_old() {
        let mut shown = shown();
        shown.ask(Instant::now());
        let early = text(&drawn_after(&shown, 2, true));
        assert!(!early.contains("no answer") && !early.contains("ago"), "{early}");
        for (seconds, told) in [(4, "no answer for 4 s"), (60, "no answer for 60 s")] {
            let drawn = drawn_after(&shown, seconds, true);
            let late = text(&drawn);
            assert!(late.contains(told) && late.contains("late p50"), "{late}");
            let dead = late.lines().position(|line| line.contains("dead  ")).expect("a member");
            let style = drawn.content[dead * 80..][..80].iter().map(|cell| cell.fg);
            assert!(style.into_iter().all(|colour| colour == Color::DarkGray), "dimmed");
        }
        let plain = text(&drawn_after(&shown, 4, false));
        assert!(plain.contains("s ago") && plain.contains("no answer for 4 s"), "{plain}");
        shown.ask(Instant::now() + Duration::from_secs(9));
        assert!(text(&drawn_after(&shown, 4, true)).contains("no answer for 4 s"), "asked again");
        shown.take(Ok(two_samples().1));
        assert!(!text(&drawn_after(&shown, 4, true)).contains("no answer"));
    }

    #[test]
    fn a_long_list_says_how_much_is_left_out() {
        let mut list = cores_of(&Between::new(&two_samples().0, &two_samples().1));
        list.rows = (0..50).map(|core| vec![core.to_string()]).collect();
        let mut terminal = Terminal::new(TestBackend::new(60, 10)).expect("in memory");
        let palette = Palette { is_coloured: false };
        terminal.draw(|frame| draw_list(frame, frame.area(), list, palette)).expect("in memory");
        let text = text(terminal.backend().buffer());
        assert!(text.contains("and 42 more"), "{text}");
    }
}
