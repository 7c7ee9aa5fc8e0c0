"""What reading a document may cost. The app and the reader process both keep to these."""

MAX_TEXT_FILE_BYTES = 16 * 2**20
"""Of a plain text file; far beyond any model's context."""
MAX_PACKED_FILE_BYTES = 128 * 2**20
"""Of a PDF or DOCX, most of which is pictures and fonts."""
MAX_EXTRACTED_CHARS = 16 * 10**6
MAX_UNPACKED_BYTES = 256 * 2**20
"""Of the one part of a DOCX that holds its words; a real one has a few MiB."""
MAX_LINES = 400_000
"""Of any document: each becomes a block with a mark."""
MEMORY_LIMIT_BYTES = 640 * 2**20
"""Address space of the reader process; with the app's own share a file costs less than 1 GiB."""
TIME_LIMIT_S = 30
