"""A course on disk and in nbgrader's gradebook.

`folders` names its paths and stores submissions, `roster` knows who is in it; `marks` enters results into the
gradebook and reads them back.
"""
