"""The paper's tables: recipes, the trainings they ask for, and a store of the results."""
