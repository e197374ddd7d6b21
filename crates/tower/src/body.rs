//! The body of a response: from the inner service, or of a denial.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::settle::RequestEnd;

pin_project! {
    /// The body of a response: the inner service's body unchanged, or the body of a denial.
    #[derive(Debug)]
    pub struct Body<B> {
        #[pin]
        kind: BodyKind<B>,
    }
}

pin_project! {
    #[project = Projected]
    #[derive(Debug)]
    enum BodyKind<B> {
        Inner { #[pin] body: B },
        Unsettled { #[pin] body: B, end: Option<Box<RequestEnd>> },
        Refusal { bytes: Bytes },
    }
}

impl<B> Body<B> {
    pub(crate) const fn inner(body: B) -> Self {
        Self { kind: BodyKind::Inner { body } }
    }

    /// The body of a request that is settled when the body ends.
    pub(crate) const fn unsettled(body: B, end: Box<RequestEnd>) -> Self {
        Self { kind: BodyKind::Unsettled { body, end: Some(end) } }
    }

    pub(crate) const fn refusal(bytes: Bytes) -> Self {
        Self { kind: BodyKind::Refusal { bytes } }
    }
}

impl<B> http_body::Body for Body<B>
where
    B: http_body::Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            Projected::Inner { body } => body.poll_frame(context),
            Projected::Unsettled { mut body, end } => {
                let frame = ready!(body.as_mut().poll_frame(context));
                let Some(waiting) = end else { return Poll::Ready(frame) };
                Poll::Ready(match frame {
                    Some(Ok(frame)) => Some(Ok(waiting.read(frame, &*body))),
                    last => {
                        waiting.body_ended(last.is_none());
                        *end = None;
                        last
                    }
                })
            }
            Projected::Refusal { bytes } if bytes.is_empty() => Poll::Ready(None),
            Projected::Refusal { bytes } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes).into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body } | BodyKind::Unsettled { body, .. } => body.is_end_stream(),
            BodyKind::Refusal { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body } | BodyKind::Unsettled { body, .. } => body.size_hint(),
            BodyKind::Refusal { bytes } => {
                SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
        }
    }
}
