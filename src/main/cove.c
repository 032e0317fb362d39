/* cove - the command. */
int main(void)
{
    return 0;
}
