"""Questions: from a data set's file, in whatever format it is at hand, to the table of questions that are asked.

In the order of the flow: `source` opens a data set, `containers` (with `json_stream`) and `hub` turn it into rows,
`shapes` says which columns of a row mean what and `values` what their cells mean, `reading` collects the questions,
`selection` leaves out, samples and splits by the `hashes`, and `build` is the whole stage.
"""
