//! HTTP/2 frame by frame, as no library would send them: floods that cost the sender little.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::http2::check_well;
use crate::support::{PATIENCE, Server};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `POST http://x/tensorflow.serving.PredictionService/Predict`, without any compression.
fn head() -> Vec<u8> {
    let mut block = vec![0x83, 0x86]; // The method and the scheme, from the fixed table.
    let path = "/tensorflow.serving.PredictionService/Predict";
    for (name, value) in [(1, "x"), (4, path)] {
        block.extend([name, u8::try_from(value.len()).unwrap()]);
        block.extend_from_slice(value.as_bytes());
    }
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        for text in [name, value] {
            if text == name {
                block.push(0);
            }
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Sends frames behind the preface, and then no more; gives the kinds of the frames that came back
/// before the server hung up.
async fn pour(server: &Server, frames: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    frames.for_each(|frame| bytes.extend(frame));
    let talk = async {
        let mut stream = TcpStream::connect(server.grpc).await.unwrap();
        let (mut read, mut write) = stream.split();
        let mut answer = Vec::new();
        // A server that has heard enough may close before all is sent.
        let send = async {
            drop(write.write_all(&bytes).await);
            drop(write.shutdown().await);
        };
        let receive = async { drop(read.read_to_end(&mut answer).await) };
        tokio::join!(send, receive);
        answer
    };
    let answer = tokio::time::timeout(PATIENCE, talk).await.expect("the server hangs up");
    let mut kinds = Vec::new();
    let mut rest = &answer[..];
    while let Some((head, behind)) = rest.split_first_chunk::<9>() {
        kinds.push(head[3]);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        rest = behind.get(length..).unwrap_or_default();
    }
    kinds
}

/// The odd numbers, which are a client's.
fn streams() -> impl Iterator<Item = u32> {
    (0..).map(|number| 2 * number + 1)
}

#[tokio::test]
async fn a_head_that_never_ends_is_hung_up_on() {
    let server = Server::start().await;
    let begin = frame(HEADERS, 0, 1, &head());
    // Small fields that are new each time, and empty frames.
    for payload in [&b"\x00\x01a\x01b"[..], b""] {
        let more = std::iter::repeat_n(frame(CONTINUATION, 0, 1, payload), 200_000);
        let kinds = pour(&server, std::iter::once(begin.clone()).chain(more)).await;
        assert!(!kinds.contains(&HEADERS), "{kinds:?}");
    }
    check_well(&server).await;
}

#[tokio::test]
async fn a_head_that_unfolds_to_megabytes_is_refused() {
    let server = Server::start().await;
    // A field of 4000 bytes that goes into the table, and then a byte for each repetition.
    let value = [b'v'; 4000];
    let mut block = head();
    block.extend([0x40, 1, b'n', 0x7f, 0xa1, 0x1e]);
    block.extend_from_slice(&value);
    block.extend(std::iter::repeat_n(0xbe, 10_000));
    let calls = streams().take(20).map(|stream| frame(HEADERS, END_HEADERS, stream, &block));
    pour(&server, calls).await;
    check_well(&server).await;
}

#[tokio::test]
async fn calls_that_the_server_is_made_to_reset_end_their_connection() {
    let server = Server::start().await;
    // A window that grows beyond all bounds is a mistake for which the server must reset the call.
    let calls = streams().take(20_000).flat_map(|stream| {
        let call = frame(HEADERS, END_HEADERS, stream, &head());
        [call, frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff])]
    });
    pour(&server, calls).await;
    check_well(&server).await;
}

#[tokio::test]
async fn settings_and_empty_frames_without_end_hold_nobody_up() {
    let server = Server::start().await;
    pour(&server, std::iter::repeat_n(frame(SETTINGS, 0, 0, &[]), 50_000)).await;
    check_well(&server).await;
    let call = frame(HEADERS, END_HEADERS, 1, &head());
    let empty = std::iter::repeat_n(frame(DATA, 0, 1, &[]), 50_000);
    pour(&server, std::iter::once(call).chain(empty)).await;
    check_well(&server).await;
}

#[tokio::test]
async fn frames_that_cannot_be_end_their_connection_alone() {
    let server = Server::start().await;
    for wrong in [
        frame(DATA, 0, 0, b"data of no call"),
        frame(CONTINUATION, END_HEADERS, 1, &head()),
        frame(SETTINGS, 0, 0, &[1]),
        frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        frame(HEADERS, END_HEADERS | END_STREAM, 2, &head()),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff; 100]),
        [&[0xff, 0xff, 0xff, DATA, 0], &[0; 4][..]].concat(),
    ] {
        let kinds = pour(&server, std::iter::once(wrong)).await;
        assert!(!kinds.contains(&HEADERS), "{kinds:?}");
        check_well(&server).await;
    }
}
