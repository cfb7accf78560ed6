"""Every system under the same loads, scenario by scenario, with a report: ``python -m bench suite``.

Like the rest of ``bench`` it reports and judges nothing. It builds on the systems, loads and measures of
``bench.server``.
"""

from __future__ import annotations

# With it the peers that live with the tests can be imported, whichever module of the suite comes first.
import bench.server  # noqa: F401
