"""Textual's Linux driver, which here survives being stopped without a warning (SIGSTOP) and continued."""

from typing import Any

from textual.drivers.linux_driver import LinuxDriver


class StoppableDriver(LinuxDriver):
    """Textual 8.2 expects SIGTSTP before SIGCONT: without it a second thread reads keys beside the first."""

    def _sigcont_application(self, *signal_arguments: Any) -> None:
        is_still_on = self._key_thread is not None and self._key_thread.is_alive()
        if self._auto_restart and is_still_on:
            # Whoever had the terminal meanwhile may have changed its modes: end properly, then begin again.
            self.suspend_application_mode()
            self._must_signal_resume = True
        super()._sigcont_application(*signal_arguments)
