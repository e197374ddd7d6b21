//! Bodies of requests and responses.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};

use crate::{ByteLimit, Limited};

impl<T: Body, L: ByteLimit> Body for Limited<T, L> {
    type Data = T::Data;
    type Error = T::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<T::Data>, T::Error>>> {
        let this = self.project();
        ready!(this.read.poll(cx, this.limit));
        let frame = ready!(this.inner.poll_frame(cx));
        // Trailers cost nothing.
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        this.read.charge(this.limit, data.map_or(0, |data| data.remaining() as u64));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.get_ref().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.get_ref().size_hint()
    }
}
