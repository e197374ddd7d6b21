//! Readers and writers.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{ByteLimit, Limited};

impl<T: AsyncRead, L: ByteLimit> AsyncRead for Limited<T, L> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        ready!(this.read.poll(cx, this.limit));
        let before = buf.filled().len();
        ready!(this.inner.poll_read(cx, buf))?;
        let passed = buf.filled().len().saturating_sub(before);
        this.read.charge(this.limit, passed as u64);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite, L: ByteLimit> AsyncWrite for Limited<T, L> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.project();
        ready!(this.write.poll(cx, this.limit));
        let passed = ready!(this.inner.poll_write(cx, buf))?;
        this.write.charge(this.limit, passed as u64);
        Poll::Ready(Ok(passed))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        ready!(this.write.poll(cx, this.limit));
        let passed = ready!(this.inner.poll_write_vectored(cx, bufs))?;
        this.write.charge(this.limit, passed as u64);
        Poll::Ready(Ok(passed))
    }

    fn is_write_vectored(&self) -> bool {
        self.get_ref().is_write_vectored()
    }

    /// Does not wait: what is flushed was charged when it was written.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(cx)
    }
}
