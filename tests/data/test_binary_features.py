import torch

from hkconv.data.binary_features import write_out


def test_rows_are_one_in_the_listed_columns(dtype):
    written = write_out(torch.tensor([[0, 3], [2, 4]], dtype=torch.uint8), 5, dtype)
    assert written.dtype == dtype
    assert written.tolist() == [[1, 0, 0, 1, 0], [0, 0, 1, 0, 1]]


def test_a_linear_map_is_the_sum_of_the_columns_embeddings(generator):
    """OGB's atom encoder adds one learned vector for each feature's category."""
    columns = torch.stack([torch.randint(0, 4, (9,), generator=generator), torch.randint(4, 7, (9,))], dim=1)
    embeddings = torch.randn(7, 3, generator=generator)
    torch.testing.assert_close(write_out(columns, 7, torch.float32) @ embeddings, embeddings[columns].sum(dim=1))
