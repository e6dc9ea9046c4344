"""A language model as a worker: it finds exact tokens (`spans`) and judges answers (`judge`).

Any configured model does, run by the project's own engine (`local`) or behind an OpenAI-compatible server (`server`).
It is asked in one way (`ask`), and no reply is asked for twice (`cache`).
"""
